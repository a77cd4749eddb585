"""A real PostgreSQL server in a directory of the user's, shared by every process that opens that directory.

Owns the server's life: finding the programs, making the cluster, starting, sharing, stopping. Refuses to
know what the server is used for: what leaves this package is a libpq connection string.
"""

from deltasql.embedded.server import EmbeddedServer

__all__ = ["EmbeddedServer"]
