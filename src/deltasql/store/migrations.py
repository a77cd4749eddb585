"""Schema migrations: numbered SQL files, each applied once, in the database transaction that records it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

from psycopg import sql

from deltasql.errors import SchemaOutdated
from deltasql.store.database import Connection, Database, fetch
from deltasql.store.queries import queries, sql_file
from deltasql.store.sqlstate import translated

FOLDER = resources.files("deltasql.store").joinpath("sql", "migrations")

# Any constant works, as long as every deltasql process takes the same lock before it migrates.
_MIGRATION_LOCK = 0x64656C74


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered SQL file, `NNNN_name.sql`."""

    number: int
    name: str
    text: str


def migrations() -> list[Migration]:
    """Return all migrations of this release, in order."""
    files = sorted((file for file in FOLDER.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [Migration(int(file.name[:4]), file.name[5:-4], file.read_text("utf-8")) for file in files]


def latest() -> int:
    """Return the schema level that this release works with."""
    return migrations()[-1].number


def level(database: Database) -> int:
    """Return the schema level of a database, 0 if it has no deltasql tables."""
    with translated(), database.connection() as connection:
        return _level(connection, database.config["postgres.schema"])


def _level(connection: Connection, schema: str) -> int:
    if not fetch(connection, "has_migrations", {"schema": schema})[0]["found"]:
        return 0
    return int(fetch(connection, "migration_level", {})[0]["level"])


def check(database: Database) -> None:
    """Raise `SchemaOutdated` with the command to run if the database has the schema of another release."""
    found, wanted = level(database), latest()
    if found > wanted:
        raise _too_new(found)
    if found < wanted:
        problem = (
            "the database has no deltasql tables: run `deltasql init`"
            if found == 0
            else f"the database is at schema level {found}, this release needs level {wanted}: run `deltasql migrate`"
        )
        raise SchemaOutdated(problem, found=found, wanted=wanted)


def _too_new(found: int) -> SchemaOutdated:
    problem = f"the database is at schema level {found}, this release works with level {latest()}: upgrade deltasql"
    return SchemaOutdated(problem, found=found, wanted=latest())


def migrate(database: Database) -> list[Migration]:
    """Apply the missing migrations and return them. Several processes may call this at the same time."""
    with translated(), database.connection() as connection, connection.transaction():
        fetch(connection, "lock_migrations", {"lock": _MIGRATION_LOCK})
        schema = database.config["postgres.schema"]
        found = _level(connection, schema)
        if found > latest():
            raise _too_new(found)
        if found == 0:
            connection.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(schema)))
        missing = [migration for migration in migrations() if migration.number > found]
        for migration in missing:
            _apply(connection, migration)
        return missing


def _apply(connection: Connection, migration: Migration) -> None:
    connection.execute(migration.text)
    connection.execute(queries()["record_migration"], {"number": migration.number, "name": migration.name})


def create_roles(database: Database) -> None:
    """Create the reader, writer and mirror roles with their grants."""
    with translated(), database.connection() as connection, connection.transaction():
        connection.execute(sql_file("roles.sql"))
