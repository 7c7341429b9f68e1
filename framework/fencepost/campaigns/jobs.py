"""One action on each of several items, in as many processes at a time as there are jobs.

Each item has a process of its own: a copy of this one, with all that it has imported and loaded. So
an action needs no start, leaves nothing behind, and returns its memory.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from fencepost.model.errors import EnvironmentFailed
from fencepost.plugins.raising import by_plugin

Item = TypeVar("Item")
Result = TypeVar("Result")


def jobs_for(runtime: str) -> int:
    """How many runs may take place at a time: one a core if they are simulated. A real cluster
    needs the machine for itself."""
    return (os.cpu_count() or 1) if runtime == "simulated" else 1


def done(
    action: Callable[[Item], Result], items: Sequence[Item], jobs: int
) -> Generator[tuple[int, Result], None, None]:
    """The place of each item with its result, in the order in which the actions end.

    With one job, actions take place in this process. Otherwise results are pickled. Raises what an
    action raises, and EnvironmentFailed for a process that died; the others are ended then.
    """
    # Without a second process: what the action raises is raised here as it is.
    if jobs == 1:
        yield from ((place, action(item)) for place, item in enumerate(items))
        return
    running: dict[Connection, tuple[int, BaseProcess]] = {}
    # Reversed, since `pop` takes from the end.
    waiting = list(enumerate(items))[::-1]
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                place, item = waiting.pop()
                # A new process for each item, forked only when its turn comes: it sees what this
                # one knows by then.
                theirs, process = _started(action, item)
                running[theirs] = place, process
            for ended in wait(list(running)):
                assert isinstance(ended, Connection)
                place, process = running[ended]
                result: Result = _received(ended, process)
                del running[ended]
                yield place, result
    finally:
        for connection, (_, process) in running.items():
            # The caller has stopped listening, or an action has raised: nobody needs the other
            # results.
            process.terminate()
            process.join()
            connection.close()


def _started(action: Callable[[Item], Result], item: Item) -> tuple[Connection, BaseProcess]:
    """A process that carries out the action, and the end of a pipe on which its result comes."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    forked = multiprocessing.get_context("fork")
    process = forked.Process(target=_carry_out, args=(action, item, theirs), daemon=True)
    process.start()
    # Only the child has the sending end from here on: if it dies, reading ends instead of waiting.
    theirs.close()
    return ours, process


def _carry_out(action: Callable[[Item], Result], item: Item, to: Connection) -> None:
    """In the process: sends a result, or an error."""
    with suppress(KeyboardInterrupt):  # the terminal interrupts the owner too, which ends this
        try:
            answer = pickle.dumps((True, action(item)))
        except Exception as error:
            try:
                # Here, since an error is sent without its traceback.
                answer = pickle.dumps((False, by_plugin(error) or error))
                # Some errors can be pickled and not read again, such as those with a constructor of
                # their own. Found here, the traceback can still be sent in place of the error.
                pickle.loads(answer)
            except Exception:  # an error that cannot be sent
                answer = pickle.dumps((False, RuntimeError(traceback.format_exc())))
        to.send_bytes(answer)


def _received(connection: Connection, process: BaseProcess) -> Any:
    """The result of the process; raises what its action raised."""
    try:
        fine, result = pickle.loads(connection.recv_bytes())
    except EOFError:
        process.join()
        raise EnvironmentFailed(
            f"a process of the search ended with exit code {process.exitcode} and no result"
        ) from None
    process.join()
    connection.close()
    if not fine:
        raise result
    return result
