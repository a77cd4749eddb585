"""`kill -9` of a publisher before and after each step.

Readers see the previous or the new version, and the next pass publishes the missing versions.
"""

from __future__ import annotations

import itertools
import os
import signal
import uuid

import pytest
from deltalake import DeltaTable

import deltasql
from deltasql.mirror import checkpoints
from deltasql.mirror.publisher import Publisher
from deltasql.storage import Directory
from deltasql.store.outbox import Outbox
from deltasql.store.publish_session import PublishSession
from tests.ageing import age
from tests.factories import add
from tests.processes import spawn
from tests.servers import wait_until

STEPS: list[tuple[type | object, str]] = [
    (Directory, "put_if_absent"),
    (Directory, "put"),
    (Directory, "upload"),
    (Directory, "delete"),
    (PublishSession, "record"),
    (Outbox, "record_checkpoint"),
    (Publisher, "publish"),
    (checkpoints, "clean_log"),
]
MOMENTS = [*((step, 1) for step in range(len(STEPS))), (0, 2), (0, 3)]
"""Pairs of a step and the call of the step at which the publisher dies."""


def publish_and_die(dsn: str, config: dict[str, str], table: str, step: int, time: int, after: bool) -> None:
    """Publish three versions, write a checkpoint and clean up the log; die at the given call of a step."""
    owner, name = STEPS[step]
    original = getattr(owner, name)
    times = itertools.count(1)

    def dying(*args: object, **kw: object) -> object:
        now = next(times) == time
        if now and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kw)
        if now:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    with deltasql.connect(dsn, config=config) as lake:
        setattr(owner, name, dying)
        lake.mirror._reconciler.reconcile(lake.mirror._find(table), check_log=False)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("step", "time"), MOMENTS, ids=[f"{STEPS[step][1]}-{time}" for step, time in MOMENTS])
def test_killed_at_each_step(embedded_lake: deltasql.Lake, step: int, time: int, after: bool) -> None:
    config = {"postgres.schema": f"s{uuid.uuid4().hex}"}  # a separate schema, so that no other lake publishes the table
    with deltasql.connect(embedded_lake.dsn, config=config) as lake:
        killed_at(lake, config, step, time, after)


def killed_at(lake: deltasql.Lake, config: dict[str, str], step: int, time: int, after: bool) -> None:
    properties = {"delta.checkpointInterval": "2", "delta.logRetentionDuration": "interval 0 days"}
    table = lake.create_table("t", "id BIGINT", properties=properties)
    for _ in range(2):
        stage(lake, table)
    lake.mirror.settle()
    age(table)
    with deltasql.connect(lake.dsn, config=config | {"mirror.mode": "off"}) as silent:
        for _ in range(3):
            stage(silent, silent.table(table.id))
    process = spawn(publish_and_die, lake.dsn, config, table.name, step, time, after)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    seen = DeltaTable(table.location)
    written = 2 + (time if after else time - 1)
    assert seen.version() == written if STEPS[step][1] == "put_if_absent" else 2 <= seen.version() <= 5
    assert len(seen.file_uris()) == seen.version()

    def completed() -> bool:
        lake.mirror._reconciler.reconcile(lake.mirror._find(table.name), check_log=False)
        return DeltaTable(table.location).version() == 5

    wait_until(completed)  # the killed publisher holds the table's lock until the server notices
    assert len(DeltaTable(table.location).file_uris()) == 5
    assert lake.mirror.validate(table.name) == []


def stage(lake: deltasql.Lake, table: deltasql.Table) -> None:
    with lake.begin() as tx:
        tx.stage(table, [add()])
