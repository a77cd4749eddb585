"""How far Spark has come with the jobs of a piece of work, for those who watch."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from deltasql.engines.spark.session import is_classic
from deltasql.progress import Report

_PAUSE = 0.25


@contextmanager
def report_jobs(session: SparkSession, report: Report | None) -> Iterator[None]:
    """Report the stages and tasks of the jobs that are run meanwhile."""
    if report is None:
        yield
    elif is_classic(session):
        with _polled(session, report):
            yield
    else:
        with _told(session, report):
            yield


@contextmanager
def _polled(session: SparkSession, report: Report) -> Iterator[None]:
    context = session.sparkContext
    if context.getConf().get("spark.ui.showConsoleProgress") == "true":
        yield  # Spark shows a bar of its own
        return
    group = context.getLocalProperty("spark.jobGroup.id")
    tracker = context.statusTracker()
    earlier = set(tracker.getJobIdsForGroup(group))
    over = threading.Event()

    def poll() -> None:
        while not over.wait(_PAUSE):
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group) if job not in earlier]
            numbers = sorted({stage for job in jobs if job for stage in job.stageIds})
            stages = [stage for stage in map(tracker.getStageInfo, numbers) if stage]
            _say(report, ((stage.numCompletedTasks, stage.numTasks) for stage in stages))

    thread = InheritableThread(poll, session=session, name="deltasql-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _told(session: SparkSession, report: Report) -> Iterator[None]:
    """A Connect server tells by itself."""

    def handler(stages: Iterable[Any] | None = None, **_: Any) -> None:
        _say(report, ((stage.num_completed_tasks, stage.num_tasks) for stage in stages or ()))

    session.registerProgressHandler(handler)
    try:
        yield
    finally:
        session.removeProgressHandler(handler)


def _say(report: Report, stages: Iterable[tuple[int, int]]) -> None:
    """Stages that Spark skips, because it has their result, never begin: those after them count all the same."""
    known = list(stages)
    done, tasks = sum(done for done, _ in known), sum(tasks for _, tasks in known)
    if tasks:
        begun = sum(done > 0 for done, _ in known)
        report(f"stage {max(begun, 1)} of {len(known)}, {done:,} of {tasks:,} tasks", done, tasks)
