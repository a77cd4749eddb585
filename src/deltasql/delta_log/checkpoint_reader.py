"""Read the actions of checkpoints of every kind: classic, in parts, and those of V2 with their sidecars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from deltasql.delta_log.commit_reader import commit_entries
from deltasql.delta_log.layout import SIDECARS
from deltasql.delta_log.log_files import Checkpoint
from deltasql.delta_log.stats_text import stats_text
from deltasql.errors import DeltaSqlError
from deltasql.protocol.actions import ACTIONS, Action, from_dict
from deltasql.storage import Directory

Json = Mapping[str, Any]

_BATCH_ROWS = 8192
_STATS, _PARSED_STATS = "add.stats", "add.stats_parsed."


def checkpoint_actions(directory: Directory, checkpoint: Checkpoint) -> Iterator[Action]:
    """Yield the actions of a checkpoint, except those of a kind that this release does not know."""
    for path in checkpoint.paths:
        sidecars: list[str] = []
        for kind, body in _entries(directory, path):
            if kind == "sidecar":
                sidecars.append(_sidecar_path(body))
            elif kind in ACTIONS:
                yield from_dict(ACTIONS[kind], _plain(body))
        for sidecar in sidecars:
            for kind, body in _entries(directory, sidecar):
                if kind in ACTIONS:
                    yield from_dict(ACTIONS[kind], _plain(body))


def _sidecar_path(body: Json) -> str:
    """Return where a sidecar is: its path is the name of a file, or a path that ends with it."""
    name = unquote(body["path"]).rpartition("/")[2]
    return f"{SIDECARS}/{name}"


def _entries(directory: Directory, path: str) -> Iterator[tuple[str, Json]]:
    """Yield the kind and the body of each action of a file."""
    if path.endswith(".json"):
        data = directory.get(path)
        if data is None:
            raise DeltaSqlError(f"{path} is missing from the log")
        yield from ((entry.kind, entry.body) for entry in commit_entries(data, path))
        return
    with directory.reading(path) as source:
        file = pq.ParquetFile(source)
        for batch in file.iter_batches(_BATCH_ROWS, columns=_columns(file)):
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                yield from ((kind, body) for kind, body in row.items() if body is not None)


def _columns(file: pq.ParquetFile) -> list[str]:
    """Return the leaf columns to read. Statistics as structs are read only if the file has none as texts: they may have
    hundreds of columns."""
    names = [file.metadata.schema.column(index).path for index in range(file.metadata.num_columns)]
    skipped = ("add.partitionValues_parsed.", *([_PARSED_STATS] if _STATS in names else []))
    return [name for name in names if not name.startswith(skipped)]


def _plain(body: Json) -> dict[str, Any]:
    """Return a checkpoint row as the JSON of a commit file has it."""
    plain = {key: value for key, value in body.items() if value is not None and not key.endswith("_parsed")}
    if body.get("stats_parsed") is not None and "stats" not in plain:
        plain["stats"] = stats_text(body["stats_parsed"])
    return plain
