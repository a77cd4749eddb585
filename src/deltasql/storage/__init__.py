"""Object stores and local directories: the only package that imports obstore."""

from deltasql.storage.directory import Directory, exists_below
from deltasql.storage.links import first_link_out
from deltasql.storage.object_store import is_local, local_path, normal_location, store_options

__all__ = ["Directory", "exists_below", "first_link_out", "is_local", "local_path", "normal_location", "store_options"]
