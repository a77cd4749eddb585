"""Privileges on namespaces: which roles are confined to which namespaces, and where tables may be created."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from deltasql.addresses import check_name
from deltasql.errors import UsageError, did_you_mean
from deltasql.store.database import Connection, Database, fetch
from deltasql.store.queries import sql_file
from deltasql.store.sqlstate import translated

PRIVILEGES = ("read", "write", "purge")
_ROLES = {"read": "deltasql_reader", "write": "deltasql_writer", "purge": "deltasql_writer"}
_ALL = ""
"""The namespace of a grant on all namespaces."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A privilege of a role.

    Attributes:
        role: The role.
        namespace: The namespace, None for all namespaces.
        privilege: `read`, `write` or `purge`; None for a role that is confined and has no privilege at all.
        role_exists: Whether the role exists. A role that was dropped or renamed does not.
    """

    role: str
    namespace: str | None
    privilege: str | None
    role_exists: bool


class Grants:
    """Gives and takes the privileges of a lake. Only the owner of the schema may do that."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def grant(self, privilege: str, namespace: str | None, role: str) -> str | None:
        """Give a role a privilege in a namespace, in all namespaces if it is None. The first grant confines the role to
        what it is granted, and makes it a member of the reader or the writer role.

        Returns:
            The role of which it became a member, None if it was one before.

        Raises:
            UsageError: The role does not exist, or cannot be confined.
        """
        with translated(), self._database.connection() as connection, connection.transaction():
            connection.execute(sql_file("roles.sql"))
            _check_role(connection, role)
            key = {"role": role, "namespace": _stored(namespace), "privilege": _checked(privilege)}
            fetch(connection, "grant", key)
            needed = _ROLES[privilege]
            if fetch(connection, "is_member", {"role": role, "group": needed})[0]["is_member"]:
                return None
            connection.execute(sql.SQL("grant {} to {}").format(sql.Identifier(needed), sql.Identifier(role)))
            return needed

    def revoke(self, privilege: str, namespace: str | None, role: str) -> None:
        """Take a privilege from a role, which stays confined to what it is still granted.

        Raises:
            UsageError: The role does not have the privilege.
        """
        key = {"role": role, "namespace": _stored(namespace), "privilege": _checked(privilege)}
        if not self._database.rows("revoke", **key):
            where = "all namespaces" if namespace is None else f"namespace {namespace}"
            raise UsageError(
                f"{role} was not granted {privilege} on {where}: `deltasql grants` lists what is", value=role
            )

    def all(self) -> list[Grant]:
        """Return all privileges, by role."""
        rows = self._database.rows("grants")
        return [Grant(row["role"], row["namespace"] or None, row["privilege"], row["role_exists"]) for row in rows]

    def allowed_roots(self) -> list[str] | None:
        """Return the locations below which tables may be created, None if every location is allowed."""
        row = self._database.row("allowed_roots")
        return None if row is None else row["allowed_roots"]

    def allow_roots(self, roots: Sequence[str] | None) -> None:
        """Set the locations below which tables may be created; None allows every location.

        Raises:
            UsageError: A root is a whole file system.
        """
        if "/" in (roots or ()):
            raise UsageError(
                "the root / allows every path: give directories and URLs, or allow every location", value="/"
            )
        self._database.execute("allow_roots", roots=None if roots is None else list(roots))


def _stored(namespace: str | None) -> str:
    return _ALL if namespace is None else check_name(namespace).lower()


def _checked(privilege: str) -> str:
    if privilege not in PRIVILEGES:
        raise UsageError(f"unknown privilege {privilege!r}{did_you_mean(privilege, PRIVILEGES)}", value=privilege)
    return privilege


def _check_role(connection: Connection, role: str) -> None:
    """Reject a role that does not exist, or that works on all namespaces because it owns the log."""
    rows = fetch(connection, "role", {"role": role})
    if not rows:
        raise UsageError(f"role {role} does not exist: create it with CREATE ROLE … LOGIN", value=role)
    if rows[0]["owns"]:
        raise UsageError(f"role {role} owns the log or is a superuser, which no grant confines", value=role)
