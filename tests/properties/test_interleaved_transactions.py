"""Interleaved transactions compared with a model: every read, version and conflict is the one that the model predicts."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import deltasql
from tests.effort import rounds
from tests.factories import add, paths, remove

TABLES = ("a", "b", "c")
_counter = itertools.count()


@dataclass
class Model:
    """The expected state of a table: the live paths of every version, and the paths that each version removed."""

    versions: list[frozenset[str]] = field(default_factory=lambda: [frozenset()])
    removed: list[frozenset[str]] = field(default_factory=lambda: [frozenset()])

    @property
    def head(self) -> int:
        return len(self.versions) - 1

    @property
    def live(self) -> frozenset[str]:
        return self.versions[-1]


@dataclass
class Open:
    """An open transaction and its expected effects."""

    tx: deltasql.Transaction
    read: dict[str, int] = field(default_factory=dict)
    adds: dict[str, set[str]] = field(default_factory=dict)
    removes: dict[str, set[str]] = field(default_factory=dict)


def machine(lake: deltasql.Lake) -> type[RuleBasedStateMachine]:
    class Interleaved(RuleBasedStateMachine):
        transactions: Bundle[Open] = Bundle("transactions")

        @initialize()
        def tables(self) -> None:
            namespace = f"machine{next(_counter)}"
            self.tables = {n: lake.create_table(f"{namespace}.{n}", "id BIGINT") for n in TABLES}
            self.models = {n: Model() for n in TABLES}

        @rule(target=transactions)
        def begin(self) -> Open:
            return Open(lake.begin())

        @rule(
            open_=transactions,
            name=st.sampled_from(TABLES),
            count=st.sampled_from([1, 2, 40]),
            with_token=st.booleans(),
        )
        def stage_new_files(self, open_: Open, name: str, count: int, with_token: bool) -> None:
            """Stage new paths, with or without the token of the transaction."""
            token = open_.tx.token if with_token else ""
            self._stage(open_, name, adds={f"f{next(_counter)}{token}.parquet" for _ in range(count)})

        @rule(open_=transactions, name=st.sampled_from(TABLES), data=st.data())
        def stage_again(self, open_: Open, name: str, data: st.DataObject) -> None:
            """Stage a path that is in the table or was in an earlier version."""
            known = sorted(set().union(*self.models[name].versions) - self._touched(open_, name))
            if known:
                self._stage(open_, name, adds={data.draw(st.sampled_from(known))})

        @rule(open_=transactions, name=st.sampled_from(TABLES), data=st.data())
        def stage_removes(self, open_: Open, name: str, data: st.DataObject) -> None:
            model = self.models[name]
            live = sorted(model.versions[open_.read.get(name, model.head)] - self._touched(open_, name))
            if live:
                self._stage(open_, name, removes=data.draw(st.sets(st.sampled_from(live), min_size=1, max_size=3)))

        def _touched(self, open_: Open, name: str) -> set[str]:
            return open_.adds.get(name, set()) | open_.removes.get(name, set())

        def _stage(self, open_: Open, name: str, adds: Any = (), removes: Any = ()) -> None:
            open_.tx.stage(self.tables[name], [*map(add, sorted(adds)), *map(remove, sorted(removes))])
            open_.read.setdefault(name, self.models[name].head)
            open_.adds.setdefault(name, set()).update(adds)
            open_.removes.setdefault(name, set()).update(removes)

        @rule(open_=consumes(transactions))
        def roll_back(self, open_: Open) -> None:
            open_.tx.rollback()

        @rule(open_=consumes(transactions))
        def commit(self, open_: Open) -> None:
            if any(self._loses(open_, name) for name in open_.read):
                with pytest.raises(deltasql.ConcurrentDeleteDelete):
                    open_.tx.commit()
                return
            expected = {self.tables[name].name: self.models[name].head + 1 for name in open_.read}
            assert open_.tx.commit() == expected
            for name in open_.read:
                model = self.models[name]
                removed = frozenset(open_.removes[name])
                model.versions.append((model.live - removed) | open_.adds[name])
                model.removed.append(removed)

        def _loses(self, open_: Open, name: str) -> bool:
            """Return whether a winner removed a path that the transaction removes."""
            since = self.models[name].removed[open_.read[name] + 1 :]
            return any(open_.removes[name] & removed for removed in since)

        @rule(name=st.sampled_from(TABLES), data=st.data())
        def travel(self, name: str, data: st.DataObject) -> None:
            model = self.models[name]
            version = data.draw(st.integers(0, model.head))
            assert paths(self.tables[name].files(version=version)) == sorted(model.versions[version])

        @invariant()
        def heads_agree(self) -> None:
            if hasattr(self, "tables"):
                versions = lake.snapshot().versions
                for name, table in self.tables.items():
                    assert versions[table.name] == self.models[name].head
                    assert paths(table.files()) == sorted(self.models[name].live)

    return Interleaved


def test_interleaved_transactions_match_the_model(lake: deltasql.Lake) -> None:
    limits = settings(
        max_examples=rounds(12), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine(lake), settings=limits)
