"""The change data feed: what happened to rows, version by version."""

from __future__ import annotations

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
"""What is told of each change besides the row."""

FOLDER = "_change_data/"
"""Where files of changes lie, below the table."""

INSERTED, DELETED, BEFORE, AFTER = "insert", "delete", "update_preimage", "update_postimage"
