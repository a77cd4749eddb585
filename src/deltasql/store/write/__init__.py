"""Commit to PostgreSQL: stage rows, lock heads, check winners, report the outcome."""
