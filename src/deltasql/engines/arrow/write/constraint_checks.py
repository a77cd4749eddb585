"""Check a table's constraints on Arrow rows, as far as they can be evaluated exactly without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.engines.arrow.write.align import MAX_SHOWN, check_not_null, violation
from deltasql.errors import UnsupportedFeature, ValidationError
from deltasql.protocol.constraints import Constraint, conditions, has_generated, replacing
from deltasql.protocol.schema import arrow_schema
from deltasql.protocol.schema_fit import parse_struct

if TYPE_CHECKING:
    from deltasql.expressions.row_filter import RowFilter


class RowChecks:
    """The constraints that every row of a table must satisfy."""

    def __init__(self, schema: pa.Schema, rules: Sequence[tuple[Constraint, RowFilter]], table: str) -> None:
        self._schema = schema
        self._rules = rules
        self._table = table

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise ConstraintViolation if a row violates a constraint."""
        check_not_null(batch, self._schema, self._table)
        for rule, holds in self._rules:
            bad = pc.invert(pc.fill_null(mask_of(holds, batch), False))
            if pc.any(bad).as_py():
                rows = batch.filter(bad).slice(0, MAX_SHOWN).to_pylist()
                raise violation(rule.name, self._table, pc.sum(bad).as_py(), rows)


def mask_of(holds: RowFilter, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return a filter's result for each row."""
    mask = holds(batch)
    return pa.repeat(mask, batch.num_rows) if isinstance(mask, pa.Scalar) else mask


def row_checks(schema_string: str, constraints: Mapping[str, str], where: str | None, table: str) -> RowChecks | None:
    """Return the checks of a table's rows, or None if one of them needs Spark."""
    struct = parse_struct(schema_string)
    if has_generated(struct):
        return None
    rules = conditions(struct, constraints) + ([replacing(where)] if where is not None else [])
    filters = [exact_filter(rule.sql, schema_string, table) for rule in rules]
    if None in filters:
        return None
    pairs = [(rule, holds) for rule, holds in zip(rules, filters, strict=True) if holds is not None]
    return RowChecks(arrow_schema(schema_string), pairs, table)


@lru_cache(maxsize=256)
def exact_filter(condition: str, schema_string: str, table: str) -> RowFilter | None:
    """Return the row filter of a condition, or None if only Spark can evaluate the condition exactly."""
    from deltasql.expressions.predicates import Predicate  # imports sqlglot, which is slow

    try:
        return Predicate.parse(condition, arrow_schema(schema_string), (), table=table).row_filter(table)
    except (UnsupportedFeature, ValidationError):
        return None
