"""`format("deltasql")`: a lake's tables for sessions that know nothing else of deltasql."""
