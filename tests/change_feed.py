"""Checks of the change data feed."""

from __future__ import annotations

import itertools
from collections import Counter

import deltasql


def assert_changes_lead_to_each_version(table: deltasql.Table) -> None:
    """Assert for all pairs of versions that the rows of the first plus the changes give the rows of the second."""
    versions = [
        Counter(tuple(r.values()) for r in table.arrow(version=v).to_pylist()) for v in range(table.version + 1)
    ]
    changes = [(tuple(row)[:-3], row["_change_type"], row["_commit_version"]) for row in table.changes(0).collect()]
    for first, last in itertools.combinations(range(table.version + 1), 2):
        rows = Counter(versions[first])
        for values, kind, version in changes:
            if first < version <= last:
                rows[values] += 1 if kind in ("insert", "update_postimage") else -1
        assert {values: count for values, count in rows.items() if count} == versions[last], (first, last)
