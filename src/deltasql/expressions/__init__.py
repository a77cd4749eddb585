"""Predicates: parsing, literals, bounds, file pruning and row filters. No I/O."""
