"""Regular expressions of PostgreSQL as patterns of Java."""
