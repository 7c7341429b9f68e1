"""The frame of a client worker's program: its configuration, and its first and last events.

A workload plugin's `main` is `sys.exit(run_worker(sys.argv, ...))`; everything in between is its
own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from fencepost.events import ClientFailed, ClientStarted, NodeStopped
from fencepost.history.recorder import Recorder
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
    recorder.record(about(chosen))
    try:
        why = work(config, chosen, recorder)
    except Exception as error:
        recorder.record(ClientFailed(error=f"{type(error).__name__}: {error}", fatal=True))
        recorder.record(NodeStopped(reason="failed"))
        raise
    recorder.record(NodeStopped(reason=why))
    return 0
