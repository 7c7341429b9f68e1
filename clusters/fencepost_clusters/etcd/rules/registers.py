"""ETCD-02 and ETCD-03: single keys, judged by revisions.

etcd numbers all writes of the store. A write's answer names its own revision. A read's answer names
the store's revision (`revision`) and that of the key's last write (`mod_revision`). So the order of
writes is known, and each answer to a client is compared with it exactly, without a search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Facts,
    Finding,
    Findings,
    Reason,
    Rule,
    RunEnd,
    Scope,
    Undecided,
    Violated,
    on,
    process_scope,
    violated,
)
from fencepost_clusters.etcd.events import RegisterCompleted, RegisterInvoked
from fencepost_clusters.etcd.rules.keys import KEPT, by_register, remember


# A swap whose comparison failed has the outcome `failed`, and has written nothing. A put whose
# outcome is not known may have written, but no revision is known for it, so no read can be compared
# with it.
def _writes(body: RegisterCompleted) -> bool:
    """Whether an operation certainly wrote, at a revision that is known."""
    return body.action != "get" and body.outcome == "ok" and body.mod_revision > 0


# Without both revisions, the answer does not say which writes it must show.
def _reads(body: RegisterCompleted) -> bool:
    """Whether its answer contains the key's value: a read, or a swap whose comparison failed."""
    answered = "ok" if body.action == "get" else "failed"
    return body.outcome == answered and min(body.revision, body.mod_revision) >= 0


# ------------------------------------------------------------------------------------------ ETCD-02


@dataclass(frozen=True, slots=True)
class _Newest:
    """The acknowledged write of the greatest revision: it is not forgotten like others."""

    revision: int
    operation: str
    at: Cause


@dataclass(slots=True)
class _Acknowledged:
    """The acknowledged writes and reads of a key, by revision."""

    writes: dict[int, tuple[str, Cause]] = field(default_factory=dict)
    reads: dict[Cause, tuple[int, int]] = field(default_factory=dict)
    """Event of a read -> revision of the store, mod_revision of the key."""
    versions: dict[int, tuple[int, Cause]] = field(default_factory=dict)
    """mod_revision of the key -> the least version that an answer showed there, and that answer."""
    newest: _Newest | None = None
    covered: int = -1
    """The greatest store revision of a linearizable read."""
    last: Cause | None = None
    """The last final read that was tried."""
    last_read: bool = False
    """Whether a final read succeeded."""

    def up_to(self, revision: int) -> int:
        """How many acknowledged writes up to that revision are remembered."""
        return sum(at <= revision for at in self.writes)


@final
class AcknowledgedWritesStay(Rule[_Acknowledged]):
    """ETCD-02. A read of the store at or after a write's revision shows that write, or a later
    one; and the key's version there counts every write until then. Where final reads are tried, one
    must succeed: what is lost after the last other read shows in it alone."""

    clause = "ETCD-02"
    keys = staticmethod(by_register)
    state = _Acknowledged

    @on(RegisterInvoked, RegisterCompleted)
    def step(self, state: _Acknowledged, event: Event, body: Struct) -> Findings:
        if isinstance(body, RegisterInvoked):
            state.last = event.ref if body.final else state.last
            return NOTHING
        assert isinstance(body, RegisterCompleted)
        if _writes(body):
            return (*self._written(state, event, body), *self._counted(state, event, body))
        if _reads(body):
            return (*self._read(state, event, body), *self._counted(state, event, body))
        if body.outcome == "ok":
            unknown = _of_operation("the answer to {operation} names no revision", body.operation)
            return (Undecided.since(unknown, event.ref),)
        return NOTHING

    @staticmethod
    def _written(state: _Acknowledged, event: Event, body: RegisterCompleted) -> Findings:
        at = body.mod_revision
        other = state.writes.get(at)
        if other is not None:
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "{operation} and {other_operation} were both acknowledged at revision {revision}",
                (other[1],),
                operation=body.operation,
                other_operation=other[0],
                revision=at,
                key=Scope("key", body.key),
                client=process_scope(event.process),
            )
            return (broken,)
        # What is remembered is bounded, so the newest write is kept beside it: the last read is
        # compared with that one.
        remember(state.writes, at, (body.operation, event.ref))
        mine = _Newest(at, body.operation, event.ref)
        state.newest = max(state.newest or mine, mine, key=lambda one: one.revision)
        # The read may have its answer before the write has, though the write came first in the
        # store.
        for read, (revision, mod_revision) in state.reads.items():
            if mod_revision < at <= revision:
                return (
                    _lost(
                        body.key,
                        body.operation,
                        at=at,
                        read=read,
                        revision=revision,
                        mod_revision=mod_revision,
                        ack=event.ref,
                    ),
                )
        return NOTHING

    @staticmethod
    def _read(state: _Acknowledged, event: Event, body: RegisterCompleted) -> Findings:
        revision, mod_revision = body.revision, body.mod_revision
        remember(state.reads, event.ref, (revision, mod_revision))
        if not body.serializable:
            state.covered = max(state.covered, revision)
        state.last_read = state.last_read or body.final
        newest = state.newest
        # The last read is made after all faults. Then the store must have reached every
        # acknowledged write.
        if body.final and newest is not None and revision < newest.revision:
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "the last read of {key} found the store at revision {store_revision}, though "
                "{operation} was acknowledged at revision {revision}",
                (newest.at,),
                key=Scope("key", body.key),
                store_revision=revision,
                operation=newest.operation,
                revision=newest.revision,
                reader=process_scope(event.process),
                client=process_scope(newest.at.process),
            )
            return (broken,)
        shown = [at for at in state.writes if at <= revision]
        if not shown:
            return NOTHING
        # Only the newest write that the read must show is compared: the earlier ones are
        # overwritten.
        last = max(shown)
        operation, ref = state.writes[last]
        if mod_revision < last:
            return (
                _lost(
                    body.key,
                    operation,
                    at=last,
                    read=event.ref,
                    revision=revision,
                    mod_revision=mod_revision,
                    ack=ref,
                ),
            )
        # Each write has its operation's name as its value, so the value tells whose write is read.
        if mod_revision == last and body.value != operation:
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "{operation} read {value!r} at revision {revision} of {key}, which was "
                "acknowledged to {other_operation}",
                (ref,),
                operation=body.operation,
                value=body.value,
                revision=last,
                key=Scope("key", body.key),
                other_operation=operation,
                reader=process_scope(event.process),
                client=process_scope(ref.process),
            )
            return (broken,)
        return (Exercised(event.ref, Evidence.CLIENT),)

    @staticmethod
    def _counted(state: _Acknowledged, event: Event, body: RegisterCompleted) -> Findings:
        """Finding: a version counts fewer writes than were acknowledged up to its revision.

        A key that was lost, and made anew by the next write, has the version 1 again: no read
        between the two needs to have seen the loss.
        """
        # What was forgotten, or never acknowledged, is not counted here: the key may have more.
        shown, version = body.mod_revision, body.version
        if shown > 0 and version >= 0:
            known = state.versions.get(shown)
            if known is None or version < known[0]:
                remember(state.versions, shown, (version, event.ref))
            writes = state.up_to(shown)
            if version < writes:
                return (
                    _uncounted(body.key, shown, version, writes, answer=event.ref, last=event.ref),
                )
        if _writes(body):
            # An acknowledgement may come after answers that must have counted it. Those that
            # counted too few without it were found already.
            later = {at: one for at, one in state.versions.items() if at > shown}
            for at, (version, ref) in later.items():
                writes = state.up_to(at)
                if version == writes - 1:
                    return (_uncounted(body.key, at, version, writes, answer=ref, last=event.ref),)
        return NOTHING

    def end(self, state: _Acknowledged, end: RunEnd) -> Findings:
        newest = state.newest
        if newest is None:
            return NOTHING
        if state.last is not None and not state.last_read:
            unread = _of_operation(
                "no final read shows what became of the write of {operation}", newest.operation
            )
            return (Undecided.since(unread, state.last),)
        if newest.revision <= state.covered:
            return NOTHING
        unread = _of_operation(
            "no linearizable read shows the store at or after the write of {operation}",
            newest.operation,
        )
        return (Undecided.since(unread, newest.at),)


def _of_operation(template: str, operation: str) -> Reason:
    return Reason.of(template, operation=operation)


@dataclass(slots=True)
class _Store:
    """The acknowledged writes of all keys: revision -> operation, key, answer."""

    writes: dict[int, tuple[str, str, Cause]] = field(default_factory=dict)


@final
class RevisionsAreUnique(Rule[_Store]):
    """ETCD-02. Writes of two keys have two revisions: at one, a later state of the store has one of
    them only. Writes of the same key are judged by `AcknowledgedWritesStay`."""

    clause = "ETCD-02"
    state = _Store

    @on(RegisterCompleted)
    def step(self, state: _Store, event: Event, body: RegisterCompleted) -> Findings:
        if not _writes(body):
            return NOTHING
        at, mine = body.mod_revision, (body.operation, body.key, event.ref)
        operation, key, ack = state.writes.get(at) or remember(state.writes, at, mine)
        if key == body.key:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.CLIENT,
            "{operation} of {key} and {other_operation} of {other_key} were both acknowledged at "
            "revision {revision}",
            (ack,),
            operation=body.operation,
            other_operation=operation,
            revision=at,
            key=Scope("key", body.key),
            other_key=Scope("key", key),
            client=process_scope(event.process),
            other=process_scope(ack.process),
        )
        return (broken,)


def _uncounted(
    key: str, at: int, version: int, writes: int, answer: Cause, last: Cause
) -> Violated:
    return violated(
        answer,
        Evidence.CLIENT,
        "{key} had version {version} at revision {revision}, though {writes} writes of it were "
        "acknowledged up to there",
        () if answer == last else (last,),
        key=Scope("key", key),
        version=version,
        revision=at,
        writes=writes,
        client=process_scope(answer.process),
    )


def _lost(
    key: str, operation: str, *, at: int, read: Cause, revision: int, mod_revision: int, ack: Cause
) -> Violated:
    return violated(
        read,
        Evidence.CLIENT,
        "{operation} was acknowledged at revision {revision} of {key}, and a read of the store at "
        "revision {store_revision} showed the key at revision {shown}",
        (ack,),
        operation=operation,
        revision=at,
        key=Scope("key", key),
        store_revision=revision,
        shown=mod_revision,
        client=process_scope(ack.process),
        reader=process_scope(read.process),
    )


# ------------------------------------------------------------------------------------------ ETCD-03


@dataclass(frozen=True, slots=True)
class _Floor:
    """The least revisions that every operation which begins from now on must show, and the event
    that showed them."""

    revision: int = -1
    mod_revision: int = 0
    at: Cause | None = None
    process: str = ""

    @property
    def because(self) -> tuple[Cause, ...]:
        return () if self.at is None else (self.at,)


@dataclass(slots=True)
class _Register:
    floor: _Floor = _Floor()
    open: dict[str, tuple[RegisterInvoked, _Floor]] = field(default_factory=dict)
    """Operation -> its invocation, and the floor at that time."""
    values: dict[int, tuple[str, Cause]] = field(default_factory=dict)
    """mod_revision -> the value that was written, or seen, there."""
    revisions: dict[str, tuple[int, Cause]] = field(default_factory=dict)
    """Value -> the mod_revision at which it was written, or seen, first: values are unique."""
    swaps: dict[int, tuple[int, str, Cause]] = field(default_factory=dict)
    """Revision of a swap that took effect -> the one it expected, its name."""
    failed: dict[str, Cause] = field(default_factory=dict)
    """Writes that certainly had no effect."""
    asked: dict[str, int] = field(default_factory=dict)
    """Value that a client has asked to write -> the revision that it wants to replace (-1: any)."""
    forgot: bool = False
    """Whether some of them are remembered no longer."""
    unasked: dict[str, tuple[Violated, int]] = field(default_factory=dict)
    """Value that was read before anybody had asked to write it -> the violation that it is if no
    event is missing, and when the read ended."""

    def ask(self, body: RegisterInvoked) -> None:
        self.forgot = self.forgot or len(self.asked) == KEPT
        remember(self.asked, body.value, body.expected if body.action == "swap" else -1)


@final
class KeysAreLinearizable(Rule[_Register]):
    """ETCD-03. Serializable reads may be stale, so only their own answer counts: a read of either
    kind shows a value that some client has asked to write, at a revision that its store has."""

    clause = "ETCD-03"
    keys = staticmethod(by_register)
    state = _Register

    @on(RegisterInvoked, RegisterCompleted)
    def step(self, state: _Register, event: Event, body: Struct) -> Findings:
        if isinstance(body, RegisterInvoked):
            remember(state.open, body.operation, (body, state.floor))
            if body.action != "get":
                state.ask(body)
            return NOTHING
        assert isinstance(body, RegisterCompleted)
        # The floor is that of the invocation: an operation may miss what ended only while it was
        # under way.
        invoked, floor = state.open.pop(body.operation, (None, _Floor()))
        found: list[Finding] = []
        if body.outcome == "failed" and body.action != "get":
            remember(state.failed, body.operation, event.ref)
            found += self._never_seen(state, body, event)
        # An operation without a known effect or answer raises no floor.
        if not _writes(body) and not _reads(body):
            return found
        if _reads(body):
            self._asked(state, event, body)
            found += self._within(event, body)
        found += [*self._value(state, event, body), *self._updates(state, event, body, invoked)]
        if not body.serializable:
            found += self._order(event, body, floor)
            state.floor = _raised(state.floor, event, body)
            # Only another client's floor exercises the clause: one client's operations go one after
            # the other, and would be in order even if each client saw a store of its own.
            if not found and floor.process not in {"", event.process}:
                found.append(Exercised(event.ref, Evidence.CLIENT))
        return found

    @staticmethod
    def _never_seen(state: _Register, body: RegisterCompleted, event: Event) -> Findings:
        """Finding: a write failed after its value was read."""
        for at, (value, seen) in state.values.items():
            if value == body.operation:
                return (_ghost(body.key, value, at, event.ref, seen),)
        return NOTHING

    @staticmethod
    def _asked(state: _Register, event: Event, body: RegisterCompleted) -> None:
        # A write of unknown end may show at any time, but not before it was asked for. Nothing is
        # known of values that were forgotten: an old write may be the one that is read.
        if body.mod_revision == 0 or body.value in state.asked or state.forgot:
            return
        broken = violated(
            event.ref,
            Evidence.CLIENT,
            "{operation} read {value!r} at revision {revision} of {key}, which no client had asked "
            "to write",
            operation=body.operation,
            value=body.value,
            revision=body.mod_revision,
            key=Scope("key", body.key),
            client=process_scope(event.process),
            asked=False,
        )
        if body.value not in state.unasked:
            remember(state.unasked, body.value, (broken, event.at_ns))

    @staticmethod
    def _within(event: Event, body: RegisterCompleted) -> Findings:
        """Finding: an answer shows the key after a write that its store has not reached."""
        # The store's revision is that of its last write, to any key.
        if body.mod_revision <= body.revision:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.CLIENT,
            "{operation} read {key} at revision {revision} of a store at revision {store_revision}",
            operation=body.operation,
            key=Scope("key", body.key),
            revision=body.mod_revision,
            store_revision=body.revision,
            client=process_scope(event.process),
        )
        return (broken,)

    @staticmethod
    def _order(event: Event, body: RegisterCompleted, floor: _Floor) -> list[Finding]:
        """Findings: an operation is older than one that had ended when it began."""
        writes = _writes(body)
        if writes:
            # A write gets a revision of its own, greater than any that the store had before: equal
            # is wrong, too.
            wrong = body.mod_revision <= floor.revision
        else:
            wrong = body.revision < floor.revision or body.mod_revision < floor.mod_revision
        if not wrong:
            return []
        other: Facts = {"other": process_scope(floor.process)} if floor.process else {}
        broken = violated(
            event.ref,
            Evidence.CLIENT,
            "{operation} wrote {key} at revision {revision}, after an operation had ended at "
            "revision {other_revision} of the key and {other_store_revision} of the store"
            if writes
            else "{operation} read {key} at revision {revision} of a store at revision "
            "{store_revision}, after an operation had ended at revision {other_revision} of the "
            "key and {other_store_revision} of the store",
            floor.because,
            operation=body.operation,
            key=Scope("key", body.key),
            revision=body.mod_revision,
            store_revision=body.revision,
            other_revision=floor.mod_revision,
            other_store_revision=floor.revision,
            client=process_scope(event.process),
            **other,
        )
        return [broken]

    @staticmethod
    def _value(state: _Register, event: Event, body: RegisterCompleted) -> list[Finding]:
        """Findings: a revision has two values, or the value of a write that failed, or one that
        another revision has."""
        at = body.mod_revision
        # Revision 0: the key was never written.
        if at == 0:
            return []
        value, seen = state.values.get(at, (body.value, event.ref))
        remember(state.values, at, (value, seen))
        if value != body.value:
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "{key} held {value!r} and {other_value!r} at revision {revision}",
                (seen,),
                key=Scope("key", body.key),
                value=value,
                other_value=body.value,
                revision=at,
                client=process_scope(event.process),
                other=process_scope(seen.process),
            )
            return [broken]
        if body.value in state.failed:
            return [_ghost(body.key, value, at, event.ref, state.failed[body.value])]
        known = state.revisions.get(value) or remember(state.revisions, value, (at, event.ref))
        if at != known[0]:
            early, late = sorted((at, known[0]))
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "{key} held {value!r} at revisions {revision} and {other_revision}, of one write",
                (known[1],),
                key=Scope("key", body.key),
                value=value,
                revision=early,
                other_revision=late,
                client=process_scope(event.process),
                other=process_scope(known[1].process),
            )
            return [broken]
        return []

    @staticmethod
    def _updates(
        state: _Register, event: Event, body: RegisterCompleted, invoked: RegisterInvoked | None
    ) -> list[Finding]:
        """Findings: a swap overwrote another write than the one it expected, or was refused
        although it found that one."""
        at = body.mod_revision
        refused = body.action == "swap" and not _writes(body)
        # One that found another revision than it expected was refused rightly.
        if refused and invoked is not None and at == invoked.expected:
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "{operation} found revision {revision} as it expected, and was refused",
                operation=body.operation,
                revision=at,
                key=Scope("key", body.key),
                client=process_scope(event.process),
                refused=True,
            )
            return [broken]
        # A swap of unknown end took effect if its value is seen. Of a refused one it says more that
        # it is seen at all.
        expected = -1 if body.value in state.failed else state.asked.get(body.value, -1)
        if 0 <= expected < at and at not in state.swaps:
            remember(state.swaps, at, (expected, body.value, event.ref))
            # The write in between may be known already, or become known later: both orders are
            # looked at, here and below.
            between = _between(state.values, expected, at)
            if between is not None:
                value, ref = state.values[between]
                return [_overwrote(body, body.value, value, at=ref, swapped=at, between=between)]
        for swapped, (expected, operation, ref) in state.swaps.items():
            if expected < at < swapped:
                return [
                    _overwrote(
                        body,
                        operation,
                        body.value,
                        at=event.ref,
                        swapped=swapped,
                        between=at,
                        swap=ref,
                    )
                ]
        return []

    def end(self, state: _Register, end: RunEnd) -> Findings:
        # The events that are missing may be those of a client that asked.
        return [
            broken if end.whole_until(at_ns) else Undecided.of(broken)
            for broken, at_ns in state.unasked.values()
        ]


def _raised(floor: _Floor, event: Event, body: RegisterCompleted) -> _Floor:
    revision = max(floor.revision, body.revision)
    mod_revision = max(floor.mod_revision, body.mod_revision)
    if (revision, mod_revision) == (floor.revision, floor.mod_revision):
        return floor
    return _Floor(revision, mod_revision, event.ref, event.process)


def _between(values: Mapping[int, object], after: int, before: int) -> int | None:
    return next((at for at in values if after < at < before), None)


def _overwrote(
    body: RegisterCompleted,
    operation: str,
    lost: str,
    *,
    at: Cause,
    swapped: int,
    between: int,
    swap: Cause | None = None,
) -> Violated:
    return violated(
        swap or at,
        Evidence.CLIENT,
        "the swap {operation} took effect at revision {revision} and overwrote {value!r} of "
        "revision {other_revision}, which it did not expect",
        (at,),
        operation=operation,
        revision=swapped,
        value=lost,
        other_revision=between,
        key=Scope("key", body.key),
    )


def _ghost(key: str, value: str, at: int, event: Cause, because: Cause) -> Violated:
    return violated(
        event,
        Evidence.CLIENT,
        "{key} held {value!r} at revision {revision}, the value of a write that failed",
        (because,),
        key=Scope("key", key),
        value=value,
        revision=at,
        client=process_scope(event.process),
        other=process_scope(because.process),
        failed=True,
    )
