"""How many runs a report has read so far: what Spark says of the tasks of its job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

EVERY_S = 0.5
Progressed = Callable[[int, int], None]


@contextmanager
def counted(session: SparkSession, tasks: int, progressed: Progressed) -> Iterator[None]:
    """Calls `progressed` with how many of so many tasks have ended, while the block runs their
    job, and at its end.

    Spark Connect reports each stage to its client. Elsewhere the session is asked, by a thread,
    since the caller waits for the job.
    """
    last = 0

    def say(ended: int) -> None:
        nonlocal last
        if ended > last:  # a stage that runs again after its executor was lost begins anew
            last = ended
            progressed(ended, tasks)

    progressed(0, tasks)
    try:
        context = session.sparkContext
    except PySparkException:  # a session of Spark Connect has none
        with _reported(session, tasks, say):
            yield
    else:
        with _asked(context, tasks, say):
            yield
    say(tasks)


@contextmanager
def _reported(session: SparkSession, tasks: int, say: Callable[[int], None]) -> Iterator[None]:
    def handler(stages: Any, inflight_tasks: int, operation_id: Any, done: bool) -> None:
        say(max((s.num_completed_tasks for s in stages or () if s.num_tasks == tasks), default=0))

    session.registerProgressHandler(handler)  # type: ignore[arg-type]
    try:
        yield
    finally:
        session.removeProgressHandler(handler)  # type: ignore[arg-type]


@contextmanager
def _asked(context: SparkContext, tasks: int, say: Callable[[int], None]) -> Iterator[None]:
    ended = Event()
    tracker = context.statusTracker()

    def watch() -> None:
        while not ended.wait(EVERY_S):
            try:
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            except (Py4JError, OSError):  # the session has ended, which the caller reports
                return
            done = (s.numCompletedTasks for s in stages if s is not None and s.numTasks == tasks)
            say(max(done, default=0))

    watching = Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
