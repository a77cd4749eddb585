"""Read snapshots, files, history and table contents from PostgreSQL."""
