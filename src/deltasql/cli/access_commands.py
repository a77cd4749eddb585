"""Commands that give and take privileges on namespaces, and that limit where tables are created."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from deltasql.cli.command_group import json_option
from deltasql.cli.connection_options import lake_options
from deltasql.cli.lake_access import open_current_store
from deltasql.cli.render import show_rows

if TYPE_CHECKING:
    from deltasql.store.grants import Grant

_USAGE = "read|write|purge ON NAMESPACE name {} role, or ON ALL NAMESPACES {} role"
_words = click.argument("words", nargs=-1, required=True, metavar="PRIVILEGE ON NAMESPACE NAME …")


@click.command(short_help="Give a role a privilege in a namespace.")
@_words
@click.pass_context
def grant(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Give a role a privilege in a namespace: deltasql grant write ON NAMESPACE shop TO etl

    The privileges are read, write and purge (drop tables together with their files). The first grant confines the role:
    from then on it works only in the namespaces that it was granted. ON ALL NAMESPACES grants the privilege in every
    namespace. The role also becomes a member of deltasql_reader or deltasql_writer.
    """
    privilege, namespace, role = _parsed(words, "TO")
    with open_current_store(lake_options(ctx).url) as store:
        joined = store.grants.grant(privilege, namespace, role)
    where = "all namespaces" if namespace is None else f"namespace {namespace}"
    click.echo(f"{role} may {privilege} in {where}, and works only where it was granted a privilege.")
    if joined is not None:
        click.echo(f"{role} is now a member of {joined}.")


@click.command(short_help="Take a privilege in a namespace from a role.")
@_words
@click.pass_context
def revoke(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Take a privilege in a namespace from a role: deltasql revoke write ON NAMESPACE shop FROM etl

    The role stays confined to the namespaces that it is still granted, even if there are none.
    """
    privilege, namespace, role = _parsed(words, "FROM")
    with open_current_store(lake_options(ctx).url) as store:
        store.grants.revoke(privilege, namespace, role)
    click.echo(f"{role} may no longer {privilege} in {'all namespaces' if namespace is None else namespace}.")


@click.command()
@json_option
@click.pass_context
def grants(ctx: click.Context, as_json: bool) -> None:
    """List the privileges on namespaces."""
    with open_current_store(lake_options(ctx).url) as store:
        rows = [_json(one) if as_json else _line(one) for one in store.grants.all()]
    show_rows(
        rows, as_json=as_json, empty="No grants: every account works on all namespaces, as far as its role allows."
    )


def _json(one: Grant) -> dict[str, str | None]:
    return {"role": one.role, "namespace": one.namespace, "privilege": one.privilege}


def _line(one: Grant) -> dict[str, str | None]:
    role = one.role if one.role_exists else f"{one.role} (does not exist)"
    return _json(one) | {"role": role, "namespace": one.namespace or ("(all)" if one.privilege else "(none)")}


@click.command()
@click.argument("locations", nargs=-1)
@click.option("--any", "anywhere", is_flag=True, help="Allow every location again.")
@click.pass_context
def roots(ctx: click.Context, locations: tuple[str, ...], anywhere: bool) -> None:
    """Show or set the locations below which tables may be created. New locations replace the earlier ones."""
    from deltasql.storage import normal_location

    if locations and anywhere:
        raise click.UsageError("give locations or --any, not both")
    with open_current_store(lake_options(ctx).url) as store:
        if locations or anywhere:
            store.grants.allow_roots(None if anywhere else [normal_location(one) for one in locations])
        allowed = store.grants.allowed_roots()
    click.echo("Tables may be created anywhere." if allowed is None else "\n".join(allowed))


def _parsed(words: Sequence[str], preposition: str) -> tuple[str, str | None, str]:
    """Return the privilege, the namespace (None for all of them) and the role."""
    upper = [word.upper() for word in words]
    if len(words) == 6 and upper[1:3] == ["ON", "NAMESPACE"] and upper[4] == preposition:
        return words[0].lower(), words[3], words[5]
    if len(words) == 6 and upper[1:5] == ["ON", "ALL", "NAMESPACES", preposition]:
        return words[0].lower(), None, words[5]
    raise click.UsageError(f"expected: {_USAGE.format(preposition, preposition)}")
