"""The frame of a client worker's program: its configuration, its first and last events, and the
times at which it did not run.

A workload plugin's `main` is `sys.exit(run_worker(sys.argv, ...))`; everything in between is its
own.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Signal
from threading import Thread
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from fencepost.events import ClientFailed, ClientStarted, NodeStopped, Stalled
from fencepost.history.recorder import Recorder
from fencepost.model.clock import BEAT_S, SECOND, STALL_NS, now_ns
from fencepost.model.system.worker_config import WorkerConfig

Options = TypeVar("Options")


def run_worker(
    argv: Sequence[str],
    options: Any,
    about: Callable[[Options], ClientStarted],
    work: Callable[[WorkerConfig, Options, Recorder], str],
    kinds: tuple[type[Struct], ...] = (),
) -> int:
    """Does a worker's work; returns its exit code: 0 when it is done, 2 for a bad configuration.

    The last of `argv` is the path of its `WorkerConfig`. `options` is the type, or union, that its
    options are decoded as; `about` turns them into what `work` takes, and `work` returns why it
    ended: "done" or "stopped". `kinds` are the plugin's own event kinds that it records.

    An exception of `work` is recorded as the client's failure, not the run's: the outcome of its
    open operations is unknown, and the record says why. It is raised again, so that the log has its
    traceback.
    """
    try:
        config = msgspec.json.decode(Path(argv[-1]).read_bytes(), type=WorkerConfig)
        chosen = msgspec.json.decode(config.options, type=options)
    except (OSError, msgspec.DecodeError) as error:
        print(f"the worker's configuration cannot be read: {error}", file=sys.stderr)
        return 2
    recorder = Recorder.open(Path(config.events), config.run, config.process, kinds)
    # The first event, by which others know that the worker works.
    recorder.record(about(chosen))
    try:
        with _stalls_recorded(recorder):
            why = work(config, chosen, recorder)
    # The failure of a client is no failure of the run: it is recorded with its reason, then the
    # end, so that the history is not taken for one that lacks this worker's last events.
    except Exception as error:
        recorder.record(ClientFailed(error=f"{type(error).__name__}: {error}", fatal=True))
        recorder.record(NodeStopped(reason="failed"))
        raise
    recorder.record(NodeStopped(reason=why))
    return 0


def stop_requested() -> Signal:
    """An event that is set once the run asks this worker to stop: at the end of its standard input,
    or by SIGTERM. For a worker that takes no commands; called once, in its main thread.

    An interrupt is ignored from now on: it is for the harness, which shares the terminal, and asks
    its workers to stop.
    """
    stopping = Signal()

    def await_end_of_input() -> None:
        # Not sys.stdin: at exit the interpreter needs its lock, which this reading thread holds.
        with open(0, "rb", closefd=False) as stream:
            stream.read()
        stopping.set()

    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A thread, since reading blocks, and a daemon, since nothing ends it if the input stays open.
    Thread(target=await_end_of_input, name="standard input", daemon=True).start()
    return stopping


@contextmanager
def _stalls_recorded(recorder: Recorder) -> Iterator[None]:
    """Records each time at which this process did not run, while the block runs.

    A client that was stopped, or whose machine was busy, waited for nothing: without its stall, the
    cluster would be blamed for the time.
    """
    over = Signal()

    def beat() -> None:
        # The time between two beats is compared, not that of one wait: also a stop between them
        # counts.
        woke_ns = now_ns()
        while not over.wait(BEAT_S):
            before_ns, woke_ns = woke_ns, now_ns()
            late_ns = woke_ns - before_ns - int(BEAT_S * SECOND)
            if late_ns > STALL_NS:
                recorder.record(Stalled(stalled_ns=late_ns))

    thread = Thread(target=beat, name="stalls", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        # Before the worker's last event: no stall may come behind it.
        thread.join()
