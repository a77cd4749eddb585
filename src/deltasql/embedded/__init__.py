"""A PostgreSQL server in a directory, shared by every process that opens that directory.

This package finds the programs, creates the cluster, and starts, shares and stops the server. Other packages get
a libpq connection string from it.
"""

from deltasql.embedded.server import EmbeddedServer

__all__ = ["EmbeddedServer"]
