"""Error classes: class tree, attributes, pickling, and the translation of PostgreSQL errors."""

from __future__ import annotations

import inspect
import pickle

import psycopg
import pytest

import deltasql
from deltasql import errors
from deltasql.store.sqlstate import is_connection_loss, translate, translate_state

EXAMPLES = [
    errors.DeltaSqlError("x"),
    errors.UsageError("x", table="t", value=1),
    errors.TableNotFound("t", "u"),
    errors.TableExists("t"),
    errors.ValidationError("x", table="t", table_id="i", value={"a": 1}),
    errors.ConstraintViolation("x", constraint="c", table="t"),
    errors.UnsupportedFeature("x", features=("f",), table="t"),
    errors.TransactionLimitExceeded("transaction.max_tables", 11, 10),
    errors.CommitConflict("r", table_id="i", table="t", winner=3, operation="WRITE", committer="me"),
    errors.VersionConflict("i", 2, 3, "t"),
    errors.HistoryReplaced("r", table_id="i"),
    errors.ConcurrentAppend("r", table_id="i"),
    errors.ConcurrentDeleteRead("r", table_id="i"),
    errors.ConcurrentDeleteDelete("r", table_id="i"),
    errors.MetadataChanged("r", table_id="i"),
    errors.ProtocolChanged("r", table_id="i"),
    errors.ConcurrentTransaction("r", table_id="i"),
    errors.DatabaseError("x", sqlstate="40P01"),
    errors.DatabaseUnavailable("x"),
    errors.CommitTimeout("x", sqlstate="55P03"),
    errors.AccessDenied("x", sqlstate="42501"),
    errors.SchemaOutdated("x", found=1, wanted=2),
    errors.StorageError("x"),
    errors.CommitOutcomeUnknown("id", "lost"),
    errors.MirrorFailure("i", 3, "disk full", "t"),
    errors.MirrorConflict("i", 3, "other bytes", "t"),
    errors.CopiedDatabase("i", 3, "a copy", "t"),
]


def test_every_class_has_an_example() -> None:
    classes = {c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.DeltaSqlError)}
    assert {type(e) for e in EXAMPLES} == classes


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_errors_pickle_with_their_attributes(error: errors.DeltaSqlError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_the_tree_is_the_one_drawn_in_the_docstring() -> None:
    drawn: dict[str, str] = {}
    stack: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        words = line.split()
        indent = len(line) - len(line.lstrip())
        if indent < 4 or not words or not hasattr(errors, words[0]):
            continue
        while stack and stack[-1][0] >= indent:
            stack.pop()
        if stack:
            drawn[words[0]] = stack[-1][1]
        stack.append((indent, words[0]))
    actual = {type(e).__name__: type(e).__bases__[0].__name__ for e in EXAMPLES if type(e) is not errors.DeltaSqlError}
    assert drawn == actual


def test_all_errors_are_public() -> None:
    assert {type(e).__name__ for e in EXAMPLES} <= set(deltasql.__all__)


def test_public_names_exist_and_are_sorted() -> None:
    assert deltasql.__all__ == sorted(deltasql.__all__)
    assert all(hasattr(deltasql, name) for name in deltasql.__all__)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("40001", errors.DatabaseError),
        ("40P01", errors.DatabaseError),
        ("55P03", errors.CommitTimeout),
        ("57014", errors.CommitTimeout),
        ("25P03", errors.CommitTimeout),
        ("25P04", errors.CommitTimeout),
        ("57P01", errors.DatabaseUnavailable),
        ("57P03", errors.DatabaseUnavailable),
        ("08006", errors.DatabaseUnavailable),
        ("53300", errors.DatabaseUnavailable),
        ("28P01", errors.DatabaseUnavailable),
        ("3D000", errors.DatabaseUnavailable),
        ("42501", errors.AccessDenied),
        ("42P01", errors.DatabaseError),
        ("XX000", errors.DatabaseError),
        (None, errors.DatabaseUnavailable),
    ],
)
def test_sqlstate_decides_the_class(state: str | None, kind: type[errors.DatabaseError]) -> None:
    error = translate_state(state, "text is for people")
    assert type(error) is kind
    assert error.sqlstate == state


def test_every_error_of_psycopg_is_translated() -> None:
    """Every error of psycopg becomes a DeltaSqlError, and SQLSTATE class 23 becomes ConstraintViolation."""
    known = [c for _, c in inspect.getmembers(psycopg.errors, inspect.isclass) if issubclass(c, psycopg.Error)]
    assert len(known) > 200
    for cls in known:
        found = translate(cls("text"))
        assert isinstance(found, errors.DeltaSqlError)
        if (cls.sqlstate or "")[:2] == "23":
            assert isinstance(found, errors.ConstraintViolation)


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (psycopg.OperationalError("server closed the connection"), True),
        (psycopg.errors.AdminShutdown("x"), True),
        (psycopg.errors.UniqueViolation("x"), False),
        (psycopg.errors.QueryCanceled("x"), False),
        (psycopg.ProgrammingError("x"), False),
    ],
)
def test_a_lost_connection_differs_from_a_rejection(error: psycopg.Error, lost: bool) -> None:
    assert is_connection_loss(error) is lost
