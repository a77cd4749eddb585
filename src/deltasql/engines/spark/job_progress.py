"""Report the progress of Spark jobs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from deltasql.engines.spark.session import is_classic
from deltasql.progress import Report

_POLL_SECONDS = 0.25


@contextmanager
def report_jobs(session: SparkSession, report: Report | None) -> Iterator[None]:
    """Report the stages and tasks of the jobs that run inside the context."""
    if report is None:
        yield
    elif is_classic(session):
        with _poll_jobs(session, report):
            yield
    else:
        with _handle_progress(session, report):
            yield


@contextmanager
def _poll_jobs(session: SparkSession, report: Report) -> Iterator[None]:
    context = session.sparkContext
    if context.getConf().get("spark.ui.showConsoleProgress") == "true":
        yield  # Spark shows its console progress bar
        return
    group = context.getLocalProperty("spark.jobGroup.id")
    tracker = context.statusTracker()
    earlier = set(tracker.getJobIdsForGroup(group))
    over = threading.Event()

    def poll() -> None:
        while not over.wait(_POLL_SECONDS):
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group) if job not in earlier]
            numbers = sorted({stage for job in jobs if job for stage in job.stageIds})
            stages = [stage for stage in map(tracker.getStageInfo, numbers) if stage]
            _report_stages(report, ((stage.numCompletedTasks, stage.numTasks) for stage in stages))

    thread = InheritableThread(poll, session=session, name="deltasql-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _handle_progress(session: SparkSession, report: Report) -> Iterator[None]:
    """Report the progress that a Connect server sends."""

    def handler(stages: Iterable[Any] | None = None, **_: Any) -> None:
        _report_stages(report, ((stage.num_completed_tasks, stage.num_tasks) for stage in stages or ()))

    session.registerProgressHandler(handler)
    try:
        yield
    finally:
        session.removeProgressHandler(handler)


def _report_stages(report: Report, stages: Iterable[tuple[int, int]]) -> None:
    """Report the sum over stages. The number of the current stage counts the stages with completed tasks, because
    stages that Spark skips, whose result is cached, never start."""
    known = list(stages)
    done, tasks = sum(done for done, _ in known), sum(tasks for _, tasks in known)
    if tasks:
        started = sum(done > 0 for done, _ in known)
        report(f"stage {max(started, 1)} of {len(known)}, {done:,} of {tasks:,} tasks", done, tasks)
