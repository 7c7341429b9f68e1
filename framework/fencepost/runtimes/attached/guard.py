"""The guard: a process of its own that heals an attached cluster, however the harness ends.

The harness of a run may be killed, and a user's cluster must not stay cut for that. So it heals
nothing at its end itself: it closes a pipe, as the kernel does for it if it is killed, and the
guard, which reads that pipe in a session of its own, heals. One way for both ends, and the ordinary
one shows in each run that it works.

    harness -> guard   its duties as one line of JSON; then one line for each act, *before* it:
                       {"node": "broker-1", "did": "stop", "found": ...}
    guard -> harness   an empty line, once it guards; at the end, one line for each thing done:
                       {"healed": "..."} or {"failed": "..."}

What it does, in this order, and each step although another one failed:

1. Removes every toxic of ours from the proxies of the links: nothing is cut any more.
2. Lets processes go on that the harness has stopped, and starts those that it has ended.
3. Removes from the cluster what is ours, by the program that its system gives.

A step that fails is tried again for `PATIENCE_S`: a node that starts needs time, and nothing is
deleted before it answers.

See docs/decisions/53-attached.md.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import BinaryIO, Literal, final

import msgspec
from msgspec import Struct

from fencepost.injection.attached_server import TheirToxiproxy
from fencepost.model.clock import poll
from fencepost.model.errors import EnvironmentFailed
from fencepost.model.system.attachment import Attachment
from fencepost.runtimes.attached.nodes import PAUSED, Found, NodeProcess, process_of

PATIENCE_S = 60.0
_AGAIN_S = 0.5
ENDS_S = 30.0
"""How long a node may take to end, once it was asked to."""
_TIDY_LIMIT_S = 40.0

Did = Literal["found", "stop", "go on", "end"]


class Act(Struct, frozen=True):
    """What the harness is about to do to a node's process, `found`."""

    node: str
    did: Did
    found: Found


class Duties(Struct, frozen=True):
    """What the guard is told as it begins."""

    attachment: Attachment
    tidying: tuple[str, ...]


class Report(Struct, frozen=True):
    """One line of what became of it: a sentence, empty if the other one has it."""

    healed: str = ""
    failed: str = ""


@final
class Guard:
    """See the module."""

    def __init__(self, duties: Duties, patience_s: float = PATIENCE_S) -> None:
        self._duties = duties
        self._patience_s = patience_s
        self._stopped: dict[str, Found] = {}
        self._ended: dict[str, Found] = {}

    def take(self, act: Act) -> None:
        """Notes what the harness is about to do."""
        if act.did == "stop":
            self._stopped[act.node] = act.found
        elif act.did == "end":
            self._ended[act.node] = act.found
        elif act.did == "go on":
            self._stopped.pop(act.node, None)
        else:  # its next process was found
            self._stopped.pop(act.node, None)
            self._ended.pop(act.node, None)

    def heal(self) -> Iterable[Report]:
        """Heals everything; never raises."""
        attachment = self._duties.attachment
        if attachment.toxiproxy is not None and attachment.links:
            server = TheirToxiproxy(attachment.toxiproxy.url)
            yield from self._tried("toxics", lambda: self._remove_toxics(server))
        for name, found in self._stopped.items():
            if name not in self._ended:
                yield from self._tried(name, partial(self._let_go_on, name, found))
        for name, found in self._ended.items():
            yield from self._tried(name, partial(self._start, name, found))
        if self._duties.tidying:
            yield from self._tried("what the run has made", self._tidy)

    def _tried(self, what: str, step: Callable[[], str]) -> Iterable[Report]:
        done: list[str] = []
        why = [""]

        def succeeds() -> bool:
            try:
                done.append(step())
            # Any other error of a step must not keep the next one from being done.
            except Exception as error:
                why[0] = str(error) or type(error).__name__
                return False
            return True

        if not poll(succeeds, self._patience_s, _AGAIN_S):
            yield Report(failed=f"{what}: {why[0]}")
        elif done[-1]:
            yield Report(healed=done[-1])

    def _remove_toxics(self, server: TheirToxiproxy) -> str:
        ours = {link.proxy for link in self._duties.attachment.links}
        removed = [(proxy, toxic) for proxy, toxic in server.strays() if proxy in ours]
        for proxy, toxic in removed:
            server.remove(proxy, toxic)
        if left := [one for one in server.strays() if one[0] in ours]:
            raise EnvironmentFailed(f"{left[0][1]} is at {left[0][0]} still")
        return f"removed {len(removed)} toxics" if removed else ""

    def _let_go_on(self, name: str, found: Found) -> str:
        process = self._process(name)
        # Whatever its state: a stop that was sent just now may not have been carried out yet.
        if not process.signal(found, signal.SIGCONT):
            return ""  # it has ended
        if process.state(found) == PAUSED:
            raise EnvironmentFailed(f"process {found.pid} is stopped still")
        return f"{name} goes on"

    def _start(self, name: str, found: Found) -> str:
        process = self._process(name)
        # One that was stopped takes SIGTERM only once it goes on.
        process.signal(found, signal.SIGCONT)
        # A signal that was sent just now takes its time, and an orderly end takes longer. One that
        # lives on was never sent any: the harness died before.
        if not poll(lambda: not process.state(found), ENDS_S, _AGAIN_S):
            return ""
        try:
            process.find()
        except EnvironmentFailed:
            return f"started {name} again: process {process.start().pid}"
        return ""

    def _process(self, name: str) -> NodeProcess:
        attachment = self._duties.attachment
        return process_of(attachment.named[name], attachment)

    def _tidy(self) -> str:
        done = subprocess.run(
            self._duties.tidying,
            capture_output=True,
            text=True,
            timeout=_TIDY_LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise EnvironmentFailed(" ".join(done.stderr.split()) or "some are left")
        removed = done.stdout.split()
        return f"removed {', '.join(removed)}" if removed else ""


def serve(told: BinaryIO, out: BinaryIO) -> None:
    """Takes its duties and acts until their end, then heals and reports; a reader that is gone
    matters not."""
    first = told.readline()
    if not first.endswith(b"\n"):  # the harness died before it touched anything
        return
    guard = Guard(msgspec.json.decode(first, type=Duties))
    out.write(b"\n")
    out.flush()
    decode = msgspec.json.Decoder(Act).decode
    for line in told:
        # The last line of a harness that was killed may be a part of one: it did not act on it.
        if line.endswith(b"\n"):
            guard.take(decode(line))
    for report in guard.heal():
        with suppress(OSError):
            out.write(msgspec.json.encode(report) + b"\n")
            out.flush()


def main() -> None:
    """`python -m fencepost.runtimes.attached.guard`, on its standard input and output."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
