"""Second readings of etcd's promises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fencepost import FaultHealed, FaultInjected
from fencepost_clusters.etcd.clients.registers import COMPARE_FAILED
from fencepost_clusters.etcd.events import (
    BecameLeader,
    LeaderElected,
    LeaseCompleted,
    LeaseInvoked,
    LockCompleted,
    LockInvoked,
    RegisterCompleted,
    RegisterInvoked,
    StoreCompleted,
    StoreInvoked,
)
from second_readings.reading import At, History, Word, reading, undecided, violated

SECOND = 1_000_000_000
GONE_WITHIN_NS = 3 * SECOND
MOST_STEPS = 20_000


@reading("ETCD-01", BecameLeader, LeaderElected)
def one_leader(history: History) -> Iterator[Word]:
    """At most one member leads in a term."""
    leaders: dict[int, set[str]] = {}
    for at in history.of(BecameLeader, LeaderElected):
        body = at.body
        who = body.member if isinstance(body, BecameLeader) else body.leader
        leaders.setdefault(body.term, set()).add(who)
    for term, names in leaders.items():
        if len(names - {""}) > 1:
            yield violated(term, *sorted(names))


class Call(NamedTuple):
    """An operation of a client on a key: when it was sent, and how it ended (None: it did not)."""

    sent: At
    done: Any
    done_ns: int


def calls(history: History) -> dict[str, list[Call]]:
    ends = {at.body.operation: at for at in history.of(RegisterCompleted)}
    found: dict[str, list[Call]] = {}
    for sent in history.of(RegisterInvoked):
        end = ends.get(sent.body.operation)
        done, at_ns = (end.body, end.at_ns) if end is not None else (None, 1 << 62)
        found.setdefault(sent.body.key, []).append(Call(sent, done, at_ns))
    return found


@reading("ETCD-02", RegisterInvoked, RegisterCompleted)
def not_lost(history: History) -> Iterator[Word]:
    """An acknowledged write is never lost: a read after the run finds it, or a later write."""
    for key, ops in calls(history).items():
        finals = [op.done for op in ops if op.sent.body.final and op.done is not None]
        read = next((done for done in finals if done.outcome == "ok"), None)
        for op in ops:
            done = op.done
            if done is None or done.action == "get" or done.outcome != "ok":
                continue
            if read is None:
                yield undecided(key, done.operation)
            elif read.mod_revision < done.mod_revision or (
                read.mod_revision == done.mod_revision and read.value != done.value
            ):
                yield violated(key, done.operation, done.mod_revision)


class Effect(NamedTuple):
    """What an operation may do: from a state of the key to the next one."""

    from_ns: int
    to_ns: int
    writes: bool
    value: str
    revision: int
    """The mod_revision that it wrote or read (-1: not known)."""
    expected: int
    optional: bool


@reading("ETCD-03", RegisterInvoked, RegisterCompleted)
def linearizable(history: History) -> Iterator[Word]:
    """Writes and linearizable reads of a key are linearizable: some order of them, in which each
    lies between its begin and its end, explains what all have read."""
    answers = [op for ops in calls(history).values() for op in ops if answered(op)]
    for op in answers:
        # The store's revision never goes back, for whoever asks after another was answered.
        for other in answers:
            same = other.done.revision == op.done.revision and op.done.action != "get"
            back = other.done.revision > op.done.revision or (same and op.done.outcome == "ok")
            if other.done_ns < op.sent.at_ns and back:
                clear = all(
                    one.done.action == "get" or one.done.revision == one.done.mod_revision
                    for one in (op, other)
                    if one.done.outcome == "ok"
                )
                word = violated if clear else undecided
                yield word(op.sent.body.key, op.done.operation, "revision")
    written = {at.body.value for at in history.of(RegisterInvoked)}
    # What an operation writes is its own name.
    written |= {at.body.operation for at in history.of(RegisterCompleted)}
    for at in history.of(RegisterCompleted):
        body = at.body
        if body.value and body.value not in written:
            # A key that is not there (mod_revision 0) has no value: then the answer is damaged.
            yield (violated if body.mod_revision else undecided)(body.key, body.operation)
        asked = [one.at_ns for one in history.of(RegisterInvoked) if one.body.value == body.value]
        if body.value and body.mod_revision and asked and min(asked) > at.at_ns:
            yield violated(body.key, body.operation, "before it was asked")
    # A write that failed was never there, whoever reads its value: its own answer, too.
    failed = {
        at.body.operation
        for at in history.of(RegisterCompleted)
        if at.body.action != "get" and at.body.outcome == "failed"
    }
    for at in history.of(RegisterCompleted):
        body = at.body
        read = body.outcome == ("ok" if body.action == "get" else "failed")
        if read and body.mod_revision > 0 <= body.revision and body.value in failed:
            yield violated(body.key, body.operation, "of a write that failed")
        if read and 0 <= body.revision < body.mod_revision:
            yield violated(body.key, body.operation, "behind its store")
    at_one: dict[tuple[str, int], set[str]] = {}
    for at in history.of(RegisterCompleted):
        at_one.setdefault((at.body.key, at.body.mod_revision), set()).add(at.body.value)
    for (key, revision), values in at_one.items():
        if revision > 0 and len(values) > 1:
            yield undecided(key, revision)  # which of the answers is damaged
    # Each write has one revision, whoever reads it, and however late.
    held: dict[tuple[str, str], set[int]] = {}
    for at in history.of(RegisterCompleted):
        body = at.body
        if body.outcome == "ok" and body.value and body.mod_revision > 0:
            held.setdefault((body.key, body.value), set()).add(body.mod_revision)
    for (key, value), revisions in held.items():
        if len(revisions) > 1:
            yield violated(key, value, *sorted(revisions))
    for key, ops in calls(history).items():
        effects = [effect for op in ops if (effect := effect_of(op)) is not None]
        damaged = False
        for op in ops:
            done = op.done
            if done is None or done.outcome != "ok":
                continue
            damaged = damaged or bool(done.error)
            if done.action != "get" and done.value not in ("", op.sent.body.value):
                damaged = True  # what a write wrote, its client knows
        told = {op.done.mod_revision for op in ops if op.done is not None}
        found = search(effects)
        # A client swaps what it has read: if nobody has read that, the history lacks it.
        if (
            damaged
            or found is None
            or any(one.expected >= 0 and one.expected not in told for one in effects)
        ):
            yield undecided(key)
        elif not found:
            yield violated(key)


def answered(op: Call) -> bool:
    """Whether a member answered it by the newest state, with the store's revision."""
    done = op.done
    if done is None or op.sent.body.serializable or done.revision < 0:
        return False
    return done.outcome == "ok" or done.error == COMPARE_FAILED


def effect_of(op: Call) -> Effect | None:
    sent, done = op.sent.body, op.done
    outcome = "unknown" if done is None else done.outcome
    compared = sent.action == "swap" and outcome == "failed" and done.error == COMPARE_FAILED
    if sent.serializable:
        return None
    if compared or (sent.action == "get" and outcome == "ok"):
        # Without a revision, what it read is not known; a key that is not there has no value.
        if done.mod_revision < 0 or (done.value and not done.mod_revision):
            return None
        return Effect(
            op.sent.at_ns,
            op.done_ns,
            writes=False,
            value=done.value,
            revision=done.mod_revision,
            expected=-1,
            optional=False,
        )
    if sent.action == "get" or outcome == "failed":
        return None  # it never took effect, and read nothing
    maybe = outcome == "unknown"
    return Effect(
        op.sent.at_ns,
        1 << 62 if maybe else op.done_ns,
        writes=True,
        value=sent.value,
        revision=-1 if maybe else done.mod_revision,
        expected=sent.expected if sent.action == "swap" else -1,
        optional=maybe,
    )


def search(effects: Sequence[Effect]) -> bool | None:
    """Whether there is such an order; None: too many were tried."""
    everything = frozenset(range(len(effects)))
    tried: set[tuple[frozenset[int], str, int]] = set()
    todo = [(everything, "", 0)]
    steps = 0
    while todo:
        left, value, revision = todo.pop()
        if all(effects[one].optional for one in left):
            return True
        steps += 1
        if steps > MOST_STEPS:
            return None
        # Whatever comes next must have begun before any other one that is left has ended.
        first_end = min(effects[one].to_ns for one in left)
        for one in left:
            effect = effects[one]
            if effect.from_ns > first_end:
                continue
            if effect.writes:
                grows = effect.revision < 0 or effect.revision > abs(revision)
                # A revision that nobody told is stored as the negative of its lower bound.
                matches = effect.expected < 0 or revision in (effect.expected,) or revision < 0
                if not grows or not matches:
                    continue
                known = effect.revision if effect.revision >= 0 else -(abs(revision) + 1)
                state = (left - {one}, effect.value, known)
            else:
                known = revision
                if revision < 0 and effect.revision >= -revision:
                    known = effect.revision
                if (effect.value, effect.revision) != (value, known):
                    continue
                state = (left - {one}, value, known)
            if state not in tried:
                tried.add(state)
                todo.append(state)
    return False


@reading(
    *("ETCD-04", LeaseInvoked, LeaseCompleted, LockInvoked, LockCompleted, BecameLeader),
    *(FaultInjected, FaultHealed),
)
def keys_go(history: History) -> Iterator[Word]:
    """A key that is attached to a lease is gone within a bound after the lease ran out. A new
    leader, and a fault, may lengthen a lease."""
    kept: dict[int, int] = {}
    invoked = {at.body.operation: at.at_ns for at in history.of(LeaseInvoked, LockInvoked)}
    for at in history.of(LeaseCompleted, LockCompleted):
        body = at.body
        if isinstance(body, LeaseCompleted):
            if body.action == "revoke" and (body.outcome == "ok" or body.ttl_s == 0):
                kept[body.lease] = at.at_ns - GONE_WITHIN_NS  # at once: it was asked for
            elif body.action != "revoke" and body.outcome != "failed":
                ttl_s = body.ttl_s if body.ttl_s >= 0 else 1 << 20
                kept[body.lease] = max(kept.get(body.lease, 0), at.at_ns + ttl_s * SECOND)
            continue
        over_ns = kept.get(body.holder_lease)
        asked_ns = invoked.get(body.operation)
        if over_ns is None or asked_ns is None:
            continue
        if body.outcome != "failed":
            if body.holder_lease > 0:
                yield undecided(body.lock, body.holder_lease)  # without an answer it names a holder
            continue
        if asked_ns > over_ns + GONE_WITHIN_NS:
            renews = [
                one
                for one in history.of(LeaseInvoked)
                if one.body.lease == body.holder_lease and one.body.action == "renew"
            ]
            pending = {one.body.operation for one in renews} - {
                one.body.operation for one in history.of(LeaseCompleted)
            }
            led = [one.at_ns for one in history.of(BecameLeader)]
            changed = any(at_ns > over_ns - 30 * SECOND for at_ns in led)
            struck = any(fault.to_ns > over_ns - 30 * SECOND for fault in history.faults)
            sure = not (pending or changed or struck)
            yield (violated if sure else undecided)(body.lock, body.holder_lease)


@reading("ETCD-05", LockInvoked, LockCompleted)
def tokens_grow(history: History) -> Iterator[Word]:
    """The fencing token of a lock grows with every holder."""
    invoked = {at.body.operation: at for at in history.of(LockInvoked)}
    takes = [
        (invoked.get(at.body.operation), at)
        for at in history.of(LockCompleted)
        if at.body.action == "take" and at.body.outcome == "ok"
    ]
    for _, before in takes:
        for asked, after in takes:
            if before.body.lock != after.body.lock or before is after:
                continue
            if before.body.token == after.body.token and before.body.lease != after.body.lease:
                yield violated(after.body.lock, after.body.token)
            later = asked is not None and before.at_ns < asked.at_ns
            if later and after.body.token < before.body.token:
                yield violated(after.body.lock, before.body.token, after.body.token)
    yield from found_holders(history, invoked, [at for _, at in takes])


def found_holders(history: History, invoked: dict[str, At], takes: Sequence[At]) -> Iterator[Word]:
    """A client that is kept out of the lock finds its holder there, with a token. That is a token
    which was given, even if the holder's own answer was lost."""
    found = [
        at
        for at in history.of(LockCompleted)
        if at.body.action == "take" and at.body.outcome != "ok" and at.body.holder_lease
        if at.body.holder_token >= 0
    ]
    told = [(at, at.body.lease, at.body.token) for at in takes]
    told += [(at, at.body.holder_lease, at.body.holder_token) for at in found]
    seen = {id(at) for at in found}
    for before, lease, token in told:
        for after, other, later_token in told:
            pair = id(before) in seen or id(after) in seen
            if not pair or before is after or before.body.lock != after.body.lock:
                continue
            if token == later_token and lease != other:
                yield violated(after.body.lock, token)
            asked = invoked.get(after.body.operation)
            later = asked is not None and before.at_ns < asked.at_ns
            if later and later_token < token:
                yield violated(after.body.lock, token, later_token)


@reading("ETCD-06", StoreInvoked, StoreCompleted)
def guarded(history: History) -> Iterator[Word]:
    """A store that a lock guards takes no write of a holder after that of a newer one."""
    writes = [at.body for at in history.of(StoreCompleted) if at.body.outcome == "ok"]
    for newer in writes:
        for older in writes:
            same = (newer.store, newer.lock) == (older.store, older.lock)
            if same and newer.token > older.token and 0 <= newer.revision < older.revision:
                yield violated(older.store, older.token, newer.token)
    yield from went_back(history)
    yield from shown(history)


def shown(history: History) -> Iterator[Word]:
    """A refusal for a newer token shows which token the store had at the refusal's revision. No
    smaller one is there at a later revision, and no greater one at an earlier."""
    ended = [at.body for at in history.of(StoreCompleted) if at.body.revision > 0]
    named = [
        (one, one.newer_token)
        for one in ended
        if one.outcome == "failed" and one.newer_token > one.token
    ]
    had = [*named, *((one, one.token) for one in ended if one.outcome == "ok")]
    for one, token in named:
        for other, other_token in had:
            if (one.store, one.lock) != (other.store, other.lock):
                continue
            early = other.revision < one.revision and other_token > token
            late = other.revision > one.revision and other_token < token
            if early or late:
                yield violated(one.store, min(token, other_token), max(token, other_token))


def went_back(history: History) -> Iterator[Word]:
    """A refusal names the token that the store has, which is that of its newest write. If a write
    with a greater one had been answered before the refused one was sent, an older holder's write
    was taken after it."""
    sent = {(at.process, at.body.operation): at.place for at in history.of(StoreInvoked)}
    answers = history.of(StoreCompleted)
    for at in answers:
        body = at.body
        asked = sent.get((at.process, body.operation))
        if body.outcome != "failed" or body.newer_token < 0 or asked is None:
            continue
        for other in answers:
            taken = other.body
            same = (taken.store, taken.lock) == (body.store, body.lock)
            took = same and taken.outcome == "ok" and taken.revision > 0
            if took and taken.token > body.newer_token and other.place < asked:
                yield violated(body.store, body.newer_token, taken.token)
