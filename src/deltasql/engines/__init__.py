"""Engines that read and write rows. `row_change` describes a change; `arrow` and `spark` run it."""
