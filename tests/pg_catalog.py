"""The catalog of PostgreSQL as the binder reads it: `python -m tests.pg_catalog` writes it from the embedded server."""

from __future__ import annotations

from pathlib import Path

import psycopg

import deltasql
from deltasql.sql.catalog import pg_catalog

# Types of arguments that no statement can have.
_HIDDEN = (
    "internal", "cstring", "trigger", "event_trigger", "language_handler", "index_am_handler", "table_am_handler",
    "tsm_handler", "fdw_handler",
)  # fmt: skip
_QUERY = """
WITH functions AS (
    SELECT 'function' AS sort, p.proname::text AS name,
           p.prokind::text || CASE WHEN p.proretset THEN 's' ELSE '' END || CASE WHEN p.provariadic <> 0 THEN 'v' ELSE '' END
               AS kind,
           array_to_string(ARRAY(SELECT y.typname FROM unnest(p.proargtypes) WITH ORDINALITY a(o, n)
               JOIN pg_type y ON y.oid = a.o ORDER BY n), ',') AS parameters,
           t.typname::text AS result,
           CASE WHEN p.pronargdefaults > 0 THEN concat_ws(',', p.pronargdefaults, array_to_string(p.proargnames, ',')) ELSE '' END
               AS defaults
    FROM pg_proc p JOIN pg_type t ON t.oid = p.prorettype
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind <> 'p'
), operators AS (
    SELECT 'operator', o.oprname::text, '', concat_ws(',', l.typname, r.typname), t.typname::text, ''
    FROM pg_operator o LEFT JOIN pg_type l ON l.oid = o.oprleft JOIN pg_type r ON r.oid = o.oprright
    JOIN pg_type t ON t.oid = o.oprresult
), casts AS (
    SELECT 'cast', s.typname::text, castcontext::text, '', t.typname::text, ''
    FROM pg_cast JOIN pg_type s ON s.oid = castsource JOIN pg_type t ON t.oid = casttarget
), types AS (
    SELECT 'type', typname::text, typcategory::text || CASE WHEN typispreferred THEN 'p' ELSE '' END, '', '', ''
    FROM pg_type WHERE typtype = 'b' AND typcategory <> 'A' AND typnamespace = 'pg_catalog'::regnamespace
)
SELECT * FROM functions UNION ALL SELECT * FROM operators UNION ALL SELECT * FROM casts UNION ALL SELECT * FROM types
"""


def catalog_text(dsn: str) -> str:
    """Return the catalog of a server: its functions, operators, casts and types."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(_QUERY).fetchall()
    hidden = set(_HIDDEN)
    lines = {"\t".join(row) for row in rows if not hidden & {*row[3].split(","), row[4]}}
    return "".join(f"{line}\n" for line in sorted(lines))


def main() -> None:
    """Write the catalog file."""
    with deltasql.connect() as lake:
        Path(pg_catalog.__file__).with_name(pg_catalog.FILE).write_text(catalog_text(lake.dsn))


if __name__ == "__main__":
    main()
