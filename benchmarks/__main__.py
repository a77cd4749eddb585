"""`make bench`: run the suites, print the results, and write them to benchmarks/results."""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psycopg
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import deltasql
from benchmarks import commits, contention, dml, mirror, register, rows, snapshots, startup, transactions, vectors
from benchmarks.measure import Result

RESULTS = Path(__file__).parent / "results"


SUITES = ("startup", "snapshot", "commit", "contention", "register", "mirror", "rows", "dml", "transactions", "vectors")


def main() -> None:
    """Run the suites named on the command line, by default all."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"{', '.join(SUITES)} [all]")
    parser.add_argument("--url", help="your own server instead of an embedded one in a temporary directory")
    chosen = parser.parse_args()
    if unknown := set(chosen.suites) - set(SUITES):
        parser.error(f"unknown suite: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory(prefix="deltasql-bench-") as directory:
        before = Path.cwd()
        os.chdir(directory)
        try:
            # Only the mirror suite publishes; the other suites measure the log in the database.
            with deltasql.connect(chosen.url, config={"mirror.mode": "off"}) as lake:
                results, machine = _run(lake, set(chosen.suites)), _machine(lake)
        finally:
            os.chdir(before)
    _show(results)
    _write(_with_earlier(results), machine)


def _run(lake: deltasql.Lake, selected: set[str]) -> list[Result]:
    console = Console(stderr=True)
    million: list[deltasql.Table] = []

    def table() -> deltasql.Table:
        if not million:
            console.print("building a table of a million live files …")
            million.append(snapshots.build(lake))
            with psycopg.connect(lake.dsn, autocommit=True) as connection:
                connection.execute("vacuum analyze")  # else autovacuum may run during a measurement
        return million[0]

    suites: dict[str, Callable[[], list[Result]]] = {
        "startup": lambda: startup.run(lake),
        "snapshot": lambda: snapshots.run(lake, table()),
        "commit": lambda: commits.run(lake, table()),
        "contention": lambda: contention.run(lake),
        "register": lambda: register.run(lake),
        "mirror": lambda: mirror.run(lake, table()),
        "rows": lambda: _rows(lake),
        "dml": lambda: dml.run(lake),
        "transactions": lambda: transactions.run(lake),
        "vectors": lambda: vectors.run(lake),
    }
    results: list[Result] = []
    for name, suite in suites.items():
        if not selected or name in selected:
            console.print(f"{name} …")
            results += suite()
    return results


def _rows(lake: deltasql.Lake) -> list[Result]:
    """Run the rows suite with the default configuration, as users do."""
    with deltasql.connect(lake.dsn) as publishing:
        return rows.run(publishing)


def _machine(lake: deltasql.Lake) -> dict[str, str]:
    with psycopg.connect(lake.dsn) as connection:
        row = connection.execute("select version(), current_setting('fsync')").fetchone()
    server, fsync = row or ("", "")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "python": platform.python_version(),
        "postgresql": f"{server.split(' on ')[0]}, fsync {fsync}",
        "deltasql": version("deltasql"),
    }


def _lines(results: list[Result]) -> list[tuple[str, ...]]:
    return [
        (
            r.suite,
            r.name + (f" ({r.note})" if r.note else ""),
            f"{r.value:,.2f} {r.unit}",
            "" if r.baseline is None else f"{r.baseline:,.2f} {r.unit}",
            "" if r.ratio is None else f"{r.ratio:.2f} ×",
            r.target,
            "yes" if r.holds else "NO",
        )
        for r in results
    ]


_HEAD = ("suite", "measurement", "deltasql", "baseline", "ratio", "target", "met")


def _show(results: list[Result]) -> None:
    table = Table(*_HEAD, box=SIMPLE_HEAD)
    for line in _lines(results):
        table.add_row(*line)
    Console().print(table)


def _with_earlier(results: list[Result]) -> list[Result]:
    """Add the earlier results of the suites that were not run."""
    earlier = (
        json.loads((RESULTS / "results.json").read_text())["results"] if (RESULTS / "results.json").exists() else []
    )
    new = {result.suite for result in results}
    every = [Result(**old) for old in earlier if old["suite"] not in new] + results
    return sorted(every, key=lambda result: SUITES.index(result.suite))


def _write(results: list[Result], machine: dict[str, str]) -> None:
    """Write the results as a page, as JSON and as a plot."""
    rows = "\n".join(f"| {' | '.join(line)} |" for line in _lines(results))
    facts = "\n".join(f"- {key}: {value}" for key, value in machine.items())
    page = (
        "# Benchmarks\n\n`make bench` writes this page. Compare only ratios: each value and its baseline were measured "
        f"alternately, in one run of a suite, on one machine.\n\n{facts}\n\n![ratios](ratios.svg)\n\n"
        f"| {' | '.join(_HEAD)} |\n|{'---|' * len(_HEAD)}\n{rows}\n"
    )
    (RESULTS / "README.md").write_text(page)
    (RESULTS / "results.json").write_text(
        json.dumps({"machine": machine, "results": [asdict(r) for r in results]}, indent=1) + "\n"
    )
    _plot(results)


def _plot(results: list[Result]) -> None:
    """Plot the share of its limit that each result uses; a share below 1 meets the target."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "deltasql"
    from matplotlib import pyplot as plt

    shares = [(r.name, _share(r), r.holds) for r in results]
    figure, axis = plt.subplots(figsize=(9, 0.42 * len(shares) + 1.2))
    names = [name if len(name) < 70 else name[:69] + "…" for name, _, _ in shares]
    axis.barh(names, [s for _, s, _ in shares], color=["#4878a8" if ok else "#c44e52" for _, _, ok in shares])
    axis.axvline(1, color="black", linewidth=1)
    axis.set_xlabel("share of the allowed cost (left of the line: target met)")
    axis.set_xlim(0, max(1.2, *(s for _, s, _ in shares)) * 1.05)
    axis.invert_yaxis()
    figure.tight_layout()
    figure.savefig(RESULTS / "ratios.svg", metadata={"Date": None})


def _share(result: Result) -> float:
    limit = float(result.target.split()[1])
    if result.ratio is None:
        return result.value / limit
    return limit / result.ratio if result.target.startswith("≥") else result.ratio / limit


if __name__ == "__main__":
    main()
