"""The schema's history: numbered SQL files, each applied once, in the transaction that records it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

from psycopg import sql

from deltasql.errors import SchemaOutdated
from deltasql.store.database import Connection, Database, fetch
from deltasql.store.queries import queries, sql_file
from deltasql.store.sqlstate import translated

# Any constant will do, as long as every deltasql process takes the same lock before it migrates.
_MIGRATION_LOCK = 0x64656C74


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    name: str
    text: str


@cache
def migrations() -> tuple[Migration, ...]:
    """All migrations of this release, in order."""
    folder = resources.files("deltasql.store").joinpath("sql", "migrations")
    files = sorted(f.name for f in folder.iterdir() if f.name.endswith(".sql"))
    return tuple(Migration(int(f[:4]), f[5:-4], sql_file(f"migrations/{f}")) for f in files)


def latest() -> int:
    """The schema level this release works with."""
    return migrations()[-1].number


def level(database: Database) -> int:
    """The schema level of a database; 0 if it holds no deltasql tables."""
    with translated(), database.connection() as connection:
        return _level(connection, database.config["postgres.schema"])


def _level(connection: Connection, schema: str) -> int:
    if not fetch(connection, "has_migrations", {"schema": schema})[0]["found"]:
        return 0
    return int(fetch(connection, "migration_level", {})[0]["level"])


def check(database: Database) -> None:
    """Refuse a database of another release, and say what to run."""
    found, wanted = level(database), latest()
    if found == wanted:
        return
    if found > wanted:
        text = (
            f"the database is at schema level {found}, this release of deltasql works with {wanted}: upgrade deltasql"
        )
    elif found == 0:
        text = "the database holds no deltasql tables: run `deltasql init`"
    else:
        text = f"the database is at schema level {found}, this release needs {wanted}: run `deltasql migrate`"
    raise SchemaOutdated(text, found=found, wanted=wanted)


def migrate(database: Database) -> list[Migration]:
    """Apply what is missing; safe to run from several processes at once."""
    with translated(), database.connection() as connection, connection.transaction():
        fetch(connection, "lock_migrations", {"lock": _MIGRATION_LOCK})
        schema = database.config["postgres.schema"]
        found = _level(connection, schema)
        if found > latest():
            raise SchemaOutdated(
                f"the database is at schema level {found}, this release of deltasql knows {latest()}: upgrade deltasql",
                found=found,
                wanted=latest(),
            )
        if found == 0:
            _create_schema(connection, schema)
        missing = [m for m in migrations() if m.number > found]
        for migration in missing:
            _apply(connection, migration)
        return missing


def _create_schema(connection: Connection, schema: str) -> None:
    connection.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(schema)))
    connection.execute(queries()["create_migrations"])


def _apply(connection: Connection, migration: Migration) -> None:
    connection.execute(migration.text)
    connection.execute(queries()["record_migration"], {"number": migration.number, "name": migration.name})


def create_roles(database: Database) -> None:
    """The reader, writer and mirror roles with their grants."""
    with translated(), database.connection() as connection, connection.transaction():
        connection.execute(sql_file("roles.sql"))
