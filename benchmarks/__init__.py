"""Benchmarks. Compare only values of one run: each value and its baseline are measured alternately."""
