"""Run the command line with `python -m deltasql.cli`."""

from deltasql.cli.main import cli

cli(prog_name="deltasql")
