"""What a second terminal asks a cluster in the hand, and what it is answered: one JSON object a
line each, one request and one answer on a connection.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from fencepost.model.errors import EXIT_USAGE, UsageError
from fencepost.model.system.status import StatusTable

ALL = "all"
"""Every fault that is not healed, in `HealFaults`."""
MOST_BYTES = 64 * 1024
"""The longest request."""
MOST_MS = 24 * 3600 * 1000
"""The longest time of a request: a day."""


class InjectFault(Struct, frozen=True, kw_only=True, tag="fault"):
    """Inject this fault. `words` are its arguments, as a command line has them (`arguments`);
    `for_ms` later it is healed (None: when somebody asks for it, or at the end)."""

    fault: str
    words: tuple[str, ...] = ()
    for_ms: int | None = None


class HealFaults(Struct, frozen=True, kw_only=True, tag="heal"):
    """Heal the fault of this id, or `ALL`."""

    fault_id: str = ALL


class AskStatus(Struct, frozen=True, kw_only=True, tag="status"):
    """Say how the cluster is, `after_ms` from now: so a watcher waits for an answer, and sleeps for
    none."""

    after_ms: int = 0


class EndCluster(Struct, frozen=True, kw_only=True, tag="down"):
    """End the cluster; the answer comes once the run was judged."""


Request = InjectFault | HealFaults | AskStatus | EndCluster


class ActiveFault(Struct, frozen=True, kw_only=True):
    """A fault that was injected. `receipt` is whether it was seen to take effect, by `evidence`; if
    it was not, `question` says what to look at. Times are milliseconds: since it began, and until
    it is healed by itself (None: it is not)."""

    fault_id: str
    fault: str
    arguments: Mapping[str, object]
    targets: tuple[str, ...]
    receipt: bool
    evidence: str
    question: str = ""
    since_ms: int
    heals_in_ms: int | None = None


class HealedFault(Struct, frozen=True, kw_only=True):
    """A fault that was healed, with the receipt of that."""

    fault_id: str
    receipt: bool
    evidence: str


class NodeStatus(Struct, frozen=True, kw_only=True):
    """A slot of a node: its newest process, with its id on this host if it runs (0: it has ended),
    and the faults that are aimed at it. No process: it was never started."""

    name: str
    role: str
    process: str
    pid: int
    faults: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether a process runs there."""
        return self.pid > 0


class Status(Struct, frozen=True, kw_only=True, tag="status"):
    """How a cluster is: its nodes, what it lacks to be whole (a sentence each), its active faults,
    and the tables of its system."""

    folder: str
    system: str
    runtime: str
    up_ms: int
    missing: tuple[str, ...]
    nodes: tuple[NodeStatus, ...]
    faults: tuple[ActiveFault, ...]
    tables: tuple[StatusTable, ...]


class Injected(Struct, frozen=True, kw_only=True, tag="injected"):
    """The fault was injected."""

    fault: ActiveFault


class Healed(Struct, frozen=True, kw_only=True, tag="healed"):
    """These faults were healed; none if none was active."""

    faults: tuple[HealedFault, ...]


class Ended(Struct, frozen=True, kw_only=True, tag="ended"):
    """The cluster has ended, and its run was judged: what `cluster up` said of it, and its page
    (empty: none was made)."""

    folder: str
    page: str
    says: tuple[str, ...]
    exit_code: int
    reason: str
    """Why it is that exit code."""


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """The request was not carried out: why, in one sentence, and the exit code that stands for
    it."""

    says: str
    exit_code: int = EXIT_USAGE


Answer = Status | Injected | Healed | Ended | Refused


def line_of(message: Request | Answer) -> bytes:
    """The line of a message, with its end."""
    return msgspec.json.encode(message) + b"\n"


def request_from(line: bytes) -> Request:
    """The request of a line; raises UsageError for a line that is none."""
    try:
        found: Request = _REQUESTS.decode(line)
    except msgspec.DecodeError as wrong:
        raise UsageError(f"this is no request that the cluster knows: {wrong}") from wrong
    times = (
        found.for_ms if isinstance(found, InjectFault) else None,
        found.after_ms if isinstance(found, AskStatus) else None,
    )
    if not all(0 <= one <= MOST_MS for one in times if one is not None):
        raise UsageError(f"a fault or an answer may wait for {MOST_MS // 3_600_000} hours at most")
    return found


def answer_from(line: bytes) -> Answer:
    """The answer of a line; raises UsageError for a line that is none."""
    try:
        found: Answer = _ANSWERS.decode(line)
    except msgspec.DecodeError as wrong:
        raise UsageError(f"the cluster's answer is of another version: {wrong}") from wrong
    return found


_REQUESTS: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_ANSWERS: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)
