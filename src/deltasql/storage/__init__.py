"""Object stores and local directories: the only package that imports obstore."""

from deltasql.storage.directory import Directory, delete_below, exists_below
from deltasql.storage.object_store import is_local, local_path, store_options

__all__ = ["Directory", "delete_below", "exists_below", "is_local", "local_path", "store_options"]
