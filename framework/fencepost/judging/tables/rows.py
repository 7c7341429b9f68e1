"""The rows of the tables that are folded in the pass that judges a run.

Fields named `*_ns` are CLOCK_MONOTONIC of the run's one host, in nanoseconds. `position` is a place
in the run's history, from 0, which respects happens-before.

Rows of tables that may be long hold text and numbers only, so the collector of cycles leaves them
out (`gc=False`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Literal, final

from msgspec import Struct

from fencepost.events.words import fault_began, fault_in_words

BINS = 600
"""The number of equal parts into which a run is divided for `DensityRow`."""


class FaultRow(Struct, frozen=True, kw_only=True):
    """A fault, from when injecting it began until it was healed, or until the run's end.

    `receipt`: whether its effect was measured. `healed`: whether it was undone at all, and
    `heal_receipt` whether that was measured too. `arguments` are its own, as a JSON object (empty:
    not known).
    """

    fault_id: str
    fault: str
    targets: tuple[str, ...]
    receipt: bool
    evidence: str
    from_ns: int
    to_ns: int
    healed: bool
    heal_receipt: bool
    arguments: str = ""

    @property
    def words(self) -> str:
        """What it does: `isolate redis-3`, `cut broker-1 -> broker-2`."""
        return fault_in_words(self.fault, self.arguments, self.targets)

    @property
    def sentence(self) -> str:
        """The sentence of the event by which it was injected, with what is known by now."""
        return fault_began(self.words, self.fault_id, self.receipt, self.evidence)


class PhaseRow(Struct, frozen=True, kw_only=True):
    """A phase of the run, which lasts until the next one."""

    phase: str
    from_ns: int


class Move(StrEnum):
    """What a change of authority does to its former holder."""

    TAKES = "takes"
    """It ends the authority of another holder, or of the same one. It may explain a failure."""
    GIVES = "gives"
    """The first holder of a scope, or the same holder and epoch as before: it takes nothing."""
    RENEWS = "renews"
    """The same holder in a new epoch."""
    REFUSES = "refuses"
    NOTES = "notes"


class AuthorityRow(Struct, frozen=True, kw_only=True, gc=False):
    """One change of authority, where it was written first; see `fencepost.Authority`.

    `wide`: the whole cluster depends on it. `holder` is the process that gained or lost it (empty:
    not known). `type` names the change in the words of its scope and its event kind, such as
    `member lost: lease.expired`.
    `was` is the scope's epoch before (-1: none), `former` the process that held it. `node` and
    `former_node` name both in the words of a scope, such as `broker 2`, where that is known.
    """

    position: int
    at_ns: int
    process: str
    node_seq: int
    kind: str
    type: str
    scope: str
    change: str
    effect: Move
    epoch: int
    was: int
    holder: str
    node: str
    former: str
    former_node: str
    wide: bool


class SpanRow(Struct, frozen=True, kw_only=True, gc=False):
    """A state that a process was in, over one scope, by its own word.

    `held`: the process held the authority over the scope in that state. `own`: the scope is the
    node itself, or one on which the whole cluster depends.
    """

    process: str
    scope: str
    state: str
    epoch: int
    held: bool
    own: bool
    from_ns: int
    to_ns: int


Sort = Literal["ok", "failed", "unknown", "refused", "other"]
"""What an event is counted as: by the outcome of the operation that it ends, or by whether it
refuses an authority."""


class DensityRow(Struct, frozen=True, kw_only=True, gc=False):
    """How many events of one sort a process had in one of `BINS` equal parts of the run."""

    process: str
    sort: Sort
    bin: int
    count: int


class SilenceRow(Struct, frozen=True, kw_only=True):
    """The longest time in which no operation of a client succeeded, of one kind and subject, such
    as `produce` and `orders-0`.

    It begins with the client's first operation or with a success, and ends with the next success,
    or with the last operation that ended; one that was left open ends with the run. `missed` is how
    many ended meanwhile, and did not succeed; 0: the client may just have had nothing to do.
    """

    process: str
    what: str
    subject: str
    from_ns: int
    to_ns: int
    missed: int


Part = Literal["before", "during", "after"]


class LatencyRow(Struct, frozen=True, kw_only=True):
    """How long the operations of one kind took that began before, during or after a fault.

    `before` begins, and `after` ends, where another fault is injected or healed. Of the `count`
    operations, `succeeded` did; the times are of these: their median, the 99th percentile and the
    longest (-1: none succeeded). An operation that is one event has no length, and is not
    counted.
    """

    fault_id: str
    part: Part
    what: str
    count: int
    succeeded: int
    median_ns: int
    slow_ns: int
    longest_ns: int


class SeenRow(Struct, frozen=True, kw_only=True):
    """A process that has events: the times of the first and the last, and how many they are."""

    process: str
    first_ns: int
    last_ns: int
    events: int


class OperationRow(Struct, frozen=True, kw_only=True, gc=False):
    """An operation of a client, at its end, or at the run's if it had none (`outcome` is empty).

    `position` and `seq` are those of its last event.
    """

    position: int
    process: str
    seq: int
    name: str
    what: str
    subject: str
    outcome: str
    error: str
    began_ns: int
    ended_ns: int


class FailedRow(Struct, kw_only=True):
    """Operations of one client that failed or were left open, are alike (`says`, `subject`,
    `outcome`, and the ids of the `faults` that were active), and follow one another: `count` of
    them, from `began_ns` to `at_ns`. `seq` and `position` are those of the event by which the first
    of them ended."""

    process: str
    seq: int
    position: int
    says: str
    subject: str
    outcome: str
    faults: tuple[str, ...]
    began_ns: int
    at_ns: int
    count: int = 1


class TestRow(Struct, frozen=True, kw_only=True):
    """A pytest test that failed, and the event that says so."""

    __test__: ClassVar[bool] = False
    process: str
    seq: int
    nodeid: str
    outcome: str
    says: str


@final
class Tables(Struct, frozen=True, kw_only=True):
    """What is folded of a run, each table in order.

    `nodes` maps a process to its nodes in the words of a scope, such as `broker 2`: more than one
    if it has several roles. `exited` maps a process to when it ended. `test` is the pytest id of
    the test that the run belongs to (empty: none). `shown` has the positions of the events of which
    each is shown by itself, beside changes of authority and failures.
    """

    authority: tuple[AuthorityRow, ...]
    spans: tuple[SpanRow, ...]
    failed: tuple[FailedRow, ...]
    silences: tuple[SilenceRow, ...]
    latencies: tuple[LatencyRow, ...]
    seen: tuple[SeenRow, ...]
    density: tuple[DensityRow, ...]
    faults: tuple[FaultRow, ...]
    phases: tuple[PhaseRow, ...]
    tests: tuple[TestRow, ...]
    test: str
    nodes: Mapping[str, tuple[str, ...]]
    exited: Mapping[str, int]
    shown: tuple[int, ...]
