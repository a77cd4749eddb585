"""A location belongs to one lake: lakes that want the same one, or one inside another, have one winner."""

from __future__ import annotations

import json
import multiprocessing as mp
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import deltasql
from tests.processes import run_all


def schema() -> dict[str, str]:
    return {"postgres.schema": f"s{uuid.uuid4().hex}"}


@pytest.fixture
def lakes(embedded_lake: deltasql.Lake) -> Iterator[tuple[deltasql.Lake, deltasql.Lake]]:
    with (
        deltasql.connect(embedded_lake.dsn, config=schema()) as one,
        deltasql.connect(embedded_lake.dsn, config=schema() | {"mirror.mode": "off"}) as two,
    ):
        yield one, two


@pytest.mark.parametrize(("first", "second"), [("t", "t"), ("t", "t/inner/x"), ("t/inner/x", "t"), ("t", "link")])
@pytest.mark.parametrize("mirrored_first", [True, False])
def test_another_lake_owns_the_location(
    lakes: tuple[deltasql.Lake, deltasql.Lake], tmp_path: Path, first: str, second: str, mirrored_first: bool
) -> None:
    one, two = lakes if mirrored_first else lakes[::-1]
    (tmp_path / "link").symlink_to(tmp_path / "t")
    table = one.create_table("shop.orders", "id BIGINT", location=str(tmp_path / first))
    owner = one.store.identity.current().lake_id
    with pytest.raises(deltasql.TableExists, match=f"belongs to table shop.orders of another lake, {owner}|Delta log"):
        two.create_table("t", "id BIGINT", location=str(tmp_path / second))
    assert two.tables() == []
    assert json.loads((Path(table.location) / "_deltasql_owner.json").read_text())["tableId"] == table.id
    assert table.append(pa.table({"id": [1]})).version == 1


def test_a_location_is_free_after_a_drop_and_after_a_failed_creation(
    lakes: tuple[deltasql.Lake, deltasql.Lake], tmp_path: Path
) -> None:
    one, two = lakes
    with pytest.raises(ZeroDivisionError), two.begin() as tx:
        tx.create_table("t", "id BIGINT", location=str(tmp_path / "t"))
        raise ZeroDivisionError
    assert not (tmp_path / "t").exists()
    two.create_table("t", "id BIGINT", location=str(tmp_path / "t"))
    two.drop_table("t")
    one.create_table("t", "id BIGINT", location=str(tmp_path / "t"))


def test_a_claim_of_a_process_that_died_does_not_count_for_its_lake(
    lakes: tuple[deltasql.Lake, deltasql.Lake], tmp_path: Path
) -> None:
    one, two = lakes
    for lake in (one, two):
        owner = {
            "lakeId": one.store.identity.current().lake_id,
            "database": "",
            "table": "x",
            "tableId": str(uuid.uuid4()),
        }
        (tmp_path / "t").mkdir(exist_ok=True)
        (tmp_path / "t" / "_deltasql_owner.json").write_text(json.dumps(owner))
        if lake is one:
            one.create_table("t", "id BIGINT", location=str(tmp_path / "t"))
            one.drop_table("t", purge=True)
    with pytest.raises(deltasql.TableExists, match="of another lake"):
        two.create_table("t", "id BIGINT", location=str(tmp_path / "t"))


def test_purge_keeps_the_files_of_another_lake(lakes: tuple[deltasql.Lake, deltasql.Lake], tmp_path: Path) -> None:
    table = lakes[0].create_table("t", "id BIGINT", location=str(tmp_path / "t"))
    owner = {"lakeId": str(uuid.uuid4()), "database": "other/db", "table": "x", "tableId": str(uuid.uuid4())}
    (tmp_path / "t" / "_deltasql_owner.json").write_text(json.dumps(owner))
    with pytest.raises(deltasql.UsageError, match=r"belongs to table x of another lake, .* \(other/db\)"):
        lakes[0].drop_table("t", purge=True)
    assert (tmp_path / "t" / "_delta_log").exists()
    assert table.version == 0


def create(dsn: str, config: dict[str, str], location: str, barrier: mp.Barrier) -> bool:  # type: ignore[valid-type]
    """Create a table when all processes are ready; return whether it was created."""
    with deltasql.connect(dsn, config=config) as lake:
        barrier.wait(60)  # type: ignore[attr-defined]
        try:
            lake.create_table("t", "id BIGINT", location=location)
        except deltasql.TableExists:
            return False
        return True


@pytest.mark.parametrize("inner", ["", "/a/b"])
def test_lakes_that_race_have_one_winner(embedded_lake: deltasql.Lake, tmp_path: Path, inner: str) -> None:
    with mp.get_context("spawn").Manager() as manager:
        barrier = manager.Barrier(4)
        places = [str(tmp_path / "t"), f"{tmp_path}/t{inner}"] * 2
        configs = [schema() | {"mirror.mode": "off"} for _ in places]
        for config in configs:
            deltasql.connect(embedded_lake.dsn, config=config).close()
        jobs = [(embedded_lake.dsn, config, place, barrier) for config, place in zip(configs, places, strict=True)]
        won = run_all(create, jobs)
    assert sum(won) == 1
    assert len(list(tmp_path.rglob("_deltasql_owner.json"))) == 1
