"""The rules that a commit must keep, checked before any lock."""
