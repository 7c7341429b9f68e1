"""A program whose session of Spark ends while an accumulator is updated, so that Java closes the
connection in the midst of the update."""

from __future__ import annotations

import socketserver
import sys
from threading import Event, Thread
from typing import Any

from pyspark import SparkContext
from pyspark.accumulators import AccumulatorParam

from fencepost_reports.many_runs.session import session

LIMIT_S = 60
BEGUN, CLOSED = Event(), Event()


class Slow:
    """Adds once Java has closed the connection."""

    def zero(self, value: int) -> int:
        return value

    def addInPlace(self, one: int, other: int) -> int:
        import __main__  # noqa: PLC0415 - a worker has no events

        if other and hasattr(__main__, "BEGUN"):
            __main__.BEGUN.set()
            __main__.CLOSED.wait(LIMIT_S)
        return one + other


class Java:
    """The Java side of a context. Its stop ends once the update that was going on has ended."""

    def __init__(self, context: SparkContext) -> None:
        self._real: Any = context._jsc
        self._server: Any = context._accumulatorServer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def stop(self) -> None:
        self._real.stop()
        CLOSED.set()
        socketserver.BaseServer.shutdown(self._server)


def main() -> None:
    with session() as started:
        context = started.sparkContext
        param: AccumulatorParam[int] = Slow()  # type: ignore[assignment]
        total = context.accumulator(0, param)
        one = context.range(1, numSlices=1)
        Thread(target=lambda: one.foreach(lambda _: total.add(1)), daemon=True).start()
        if not BEGUN.wait(LIMIT_S):
            sys.exit("no update began")
        context._jsc = Java(context)


if __name__ == "__main__":
    main()
