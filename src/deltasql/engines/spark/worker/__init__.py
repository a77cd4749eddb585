"""Functions that run in Spark's Python workers, on executors. They read and write files and never open PostgreSQL."""
