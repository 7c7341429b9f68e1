"""The cause that each planted defect gives a failure, written down from the defect alone.

A cause is a loss of authority over a scope that the violation names, or nothing. It is resolved in
the history by what events say of themselves, without the job: the newest loss of that scope before
the failure. If there is none, nothing is the cause.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from fencepost import Change, Event, FaultInjected
from fencepost.reporting import Broken, changes_authority, has_concerns, scopes_of, shared_record

NOTHING = "nothing"
CONTROLLER = "controller"
PARTITION = "partition"
TOPIC = "topic"
"""The partitions, or topics, that the failure concerns."""
LEADER = "leader"
"""The broker that led such a partition before."""
FORMER = "former leader"
"""The partitions, and the brokers that led them, before the term that the failure is about: that
term's own end comes later than what it proves, and explains nothing."""
OWN_LOSS = "own loss"
"""The partitions as the first broker lost them, if it ever did: its log has what it wrote as their
leader, also if another leader lost them since."""

STATED = "stated broker"
"""The broker that the violation states as such, whoever else takes part."""
WENT_OUT = "broker outside"
"""The brokers that the violation lists as gone from an ISR."""

_BROKERS: Mapping[str, int] = {"first broker": 0, "second broker": 1, "last broker": -1}
"""The brokers, in the order in which the violation's sentence names them."""

CAUSES: Mapping[str, Sequence[str]] = {
    "elects-shorter-log": (CONTROLLER,),
    "isolated-controller-stays": (CONTROLLER,),
    "follows-bootstrap-only": (CONTROLLER,),
    "keeps-uncommitted-state": (CONTROLLER,),
    "fences-at-takeover": (CONTROLLER,),
    "deposed-controller-renews": (CONTROLLER,),
    "reuses-broker-epochs": (CONTROLLER,),
    "former-controller-judges": (CONTROLLER,),
    "deposed-answers-heartbeats": (CONTROLLER,),
    "obeys-deposed-controller": (CONTROLLER,),
    "lease-under-old-epoch": ("first broker",),
    "loser-still-counts": ("last broker",),
    "serves-without-lease": ("first broker",),
    "online-past-session": ("first broker",),
    "names-fenced-brokers": ("second broker",),
    "fenced-broker-keeps-leading": ("first broker",),
    "deleted-broker-stays-in-isr": ("first broker",),
    "places-on-dead-broker": ("first broker",),
    "metadata-names-inactive": ("second broker",),
    "elects-inactive": ("first broker",),
    "sends-former-incarnation": ("second broker",),
    "serves-while-fenced": ("first broker",),
    "stays-fenced": ("first broker",),
    "inactive-for-good": ("last broker",),
    "takes-old-incarnation": ("last broker",),
    "adopting-hides-bounce": ("last broker",),
    "overwritten-changes-isr": ("last broker",),
    "overwritten-fetch-counts": ("last broker",),
    "refused-serves-on": ("first broker",),
    "obeys-old-update-metadata": ("first broker",),
    "obeys-old-stop-replica": ("first broker",),
    "obeys-old-leader-and-isr": ("first broker",),
    "takes-old-shutdown": ("second broker",),
    "restarted-not-initialised": ("second broker",),
    "misses-fast-bounce": ("second broker",),
    "stays-without-znode": ("second broker",),
    "metadata-names-former-leader": (FORMER,),
    "elects-outside-isr": (PARTITION, LEADER),
    "elects-lowest-id": (PARTITION, LEADER, "first broker"),
    "elects-any-live-replica": (PARTITION, LEADER),
    "applies-stale-isr-change": (PARTITION, LEADER),
    "never-goes-back": (OWN_LOSS, "first broker"),
    "truncates-to-checkpoint": (PARTITION, LEADER),
    "never-truncates": (OWN_LOSS,),
    "former-leader-writes": (PARTITION, LEADER),
    "former-leader-changes-isr": (PARTITION, LEADER),
    "new-leader-forgets-producers": (PARTITION, LEADER),
    "acks-on-stepping-down": (PARTITION, LEADER),
    "deleted-topic-comes-back": (TOPIC,),
    "stands-by-lowest-id": (PARTITION, LEADER, "first broker"),
    "stands-outside-isr": (PARTITION, LEADER),
    "stands-without-isr": (PARTITION, LEADER),
    "two-leaders-elected": (PARTITION, LEADER),
    "no-head-start": (PARTITION, LEADER),
    "serves-before-isr-stored": (PARTITION, LEADER),
    "waits-for-no-member": (PARTITION, LEADER),
    "keeps-elected-epoch": (PARTITION, LEADER),
    "leadership-never-returns": (OWN_LOSS, "first broker"),
} | dict.fromkeys(
    (
        *("snapshot-misses-changes", "two-snapshots-at-once", "writes-newer-format"),
        *("lag-stays-zero", "answers-uncommitted", "lease-by-controller-clock", "never-fences"),
        # The entry that it takes over is active: its process had lost nothing, or has it again.
        "registers-unfenced",
        *("keeps-stale-broker", "online-with-stale-metadata", "unauthorized-requests-accepted"),
        *("admits-a-controllers-id", "admits-unsupporting-broker", "restart-waits-out-lease"),
        *("shutdown-while-leading", "registers-unrecovered", "starting-broker-serves"),
        *("stops-while-leading", "stops-never", "one-neighbour-holds-all"),
        *("adding-moves-everything", "switches-before-caught-up", "former-replica-stays-in-isr"),
        *("restarts-from-log-end", "appends-past-end", "followers-never-learn"),
        *("dead-follower-blocks", "laggard-joins-isr", "commits-on-unstored-shrink"),
        *("flushed-before-sync", "acks-before-followers", "serves-uncommitted"),
        *("active-before-heartbeat", "refuses-while-stopping", "exits-while-leading"),
        *("silent-stays-active", "fences-before-controller", "ignores-target"),
        *("takes-malformed", "writes-isr-itself", "isr-shrinks-to-nothing"),
        *("answers-before-stored", "old-protocol-heartbeats", "old-protocol-fences-itself"),
        *("old-protocol-asks-controller", "old-protocol-registers-anew"),
        *("legacy-declared-silent", "answers-without-effect", "refuses-without-epoch"),
        *("only-members-stand", "loses-state-requests", "notices-no-new-topic"),
    ),
    (NOTHING,),
)
"""Each defect, and what may be its cause: any of these is right."""

UNDECIDED: Mapping[str, str] = {
    "votes-twice": "whether the election that it needs follows a loss depends on the run",
    "unfences-itself": "it needs no former fencing, and can follow one",
    "reuses-leader-epoch": "it breaks two promises, one at a loss and one at a change of the ISR",
    "never-fences-itself": "the loss it lacks is the controller's word, which may come or not",
    "first-leader-and-isr-partial": "it needs a start, which may be a bounce or not",
    "drops-update-metadata": "any change of the cluster may be what was dropped",
}
"""Defects without one answer; their runs are not counted."""

SAME_NS = 2_000_000_000
"""Losses of one scope within this time of each other are one."""


@final
@dataclass(frozen=True, slots=True)
class Truth:
    """The events of the losses that are the cause of a failure (none: nothing is), the fault that
    brought them about (empty: none), and what the baselines say."""

    losses: frozenset[int]
    fault: str
    nearest_fault: str
    latest_authority: int


@final
@dataclass(slots=True)
class _Loss:
    """The newest loss of a scope: its events, from the first that reports it."""

    positions: list[int]
    at_ns: int
    holders: list[str]
    """Whoever held it and lost it, in their order."""
    closed: bool = False
    last_ns: int = 0

    @property
    def holder(self) -> str:
        """Whoever lost it first."""
        return self.holders[0]


@final
@dataclass(frozen=True, slots=True)
class _Losses:
    """The newest loss of each scope, that of each scope by each holder, and the position of the
    newest of all."""

    newest: Mapping[str, _Loss]
    of_holders: Mapping[tuple[str, str], _Loss]
    latest: int

    def by(self, holder: str) -> Mapping[str, _Loss]:
        """The newest loss of each scope by this holder."""
        return {scope: loss for (scope, of), loss in self.of_holders.items() if of == holder}


def truth(wanted: Sequence[str], broken: Broken, events: Sequence[Event]) -> Truth | None:
    """The cause of a violation in a history, if it may be any of what is wanted; None if its event
    is not there."""
    places = {(e.process, e.node_seq): n for n, e in enumerate(events)}
    at = places.get((broken.at.process, broken.at.seq))
    if at is None:
        return None
    known = _losses(events[: at + (1 if _gains(events[at]) else 0)])
    losses = known.newest
    if FORMER in wanted:
        # The proof is the event by which the term began.
        began = max(places[one.process, one.seq] for one in broken.because)
        losses = _losses(events[:began]).newest
    elif OWN_LOSS in wanted:
        losses = {**losses, **known.by(_brokers(broken)[0])}
    scopes = _scopes_of(wanted, broken, events[at], losses)
    found = [losses[scope] for scope in scopes if scope in losses]
    faults = [e for e in events[: at + 1] if isinstance(e.body, FaultInjected)]
    first_ns = min((one.at_ns for one in found), default=events[at].at_ns)
    return Truth(
        frozenset(position for one in found for position in one.positions),
        _fault(faults, scopes, first_ns),
        "" if not faults else faults[-1].body.fault_id,  # type: ignore[attr-defined]
        known.latest,
    )


def _gains(event: Event) -> bool:
    if not changes_authority(event.body):
        return False
    return any(one.change is Change.GAINED for one in event.body.authority())


def _losses(events: Sequence[Event]) -> _Losses:
    held: dict[str, tuple[str, int]] = {}
    losses: dict[str, _Loss] = {}
    of_holders: dict[tuple[str, str], _Loss] = {}
    latest = -1
    seen: set[Hashable] = set()
    for position, event in enumerate(events):
        if not changes_authority(event.body):
            continue
        record = shared_record(event)
        for one in event.body.authority():
            if one.change not in (Change.GAINED, Change.LOST) or one.matter:
                continue
            if record is not None and (record, one.scope) in seen:
                continue
            seen.add((record, one.scope))
            holder, epoch = held.get(one.scope, ("", -1))
            newer = one.epoch > epoch
            by = one.node or one.holder or event.process
            other = by != holder
            taken = one.change is Change.GAINED and newer and bool(holder) and other
            if one.change is Change.LOST and one.scope in held:
                # A registration in a newer epoch ends the authority of the one before.
                taken = taken or one.epoch == -1 or one.epoch >= epoch
            if taken:
                loss = losses.get(one.scope)
                if loss is None or (loss.closed and event.at_ns - loss.last_ns > SAME_NS):
                    loss = losses[one.scope] = _Loss([], event.at_ns, [])
                    of_holders[one.scope, holder] = loss
                loss.positions.append(position)
                if holder not in loss.holders:
                    loss.holders.append(holder)
                loss.last_ns = event.at_ns
                loss.closed = one.change is Change.GAINED
                latest = position
            elif one.change is Change.GAINED:
                loss = losses.get(one.scope)
                if loss is not None and one.epoch in (-1, epoch):
                    if one.epoch == epoch and loss.closed:
                        loss.positions.append(position)
                    loss.closed = True
            if one.change is Change.GAINED and (newer or one.epoch < 0 or one.scope not in held):
                held[one.scope] = (by, one.epoch)
    return _Losses(losses, of_holders, latest)


def _brokers(broken: Broken) -> Sequence[str]:
    """The brokers that a violation states, by their ids or by processes or slots of theirs, in its
    order."""
    found = []
    for one in scopes_of(broken.facts):
        name = one.name.partition("#")[0]
        if one.kind == "broker":
            found.append(one.words)
        elif one.kind in ("process", "slot") and name.startswith("broker-"):
            found.append(f"broker {name.split('-')[1]}")
    return found


def _scopes_of(
    wanted: Sequence[str], broken: Broken, event: Event, losses: Mapping[str, _Loss]
) -> Sequence[str]:
    named = _brokers(broken)
    concerned = list(event.body.concerns()) if has_concerns(event.body) else []
    partitions = [scope for scope in concerned if scope.startswith("partition ")]
    partitions += [one.words for one in scopes_of(broken.facts) if one.kind == "partition"]
    found: list[str] = []
    for one in wanted:
        if one == CONTROLLER:
            found.append(CONTROLLER)
        elif one in (FORMER, OWN_LOSS):
            found += [*partitions, *(losses[s].holder for s in partitions if s in losses)]
        elif one == PARTITION:
            found += partitions
        elif one == LEADER:
            found += [one for s in partitions if s in losses for one in losses[s].holders]
        elif one == STATED:
            found += [about.words for about in scopes_of({one: broken.facts.get("broker")})]
        elif one == WENT_OUT:
            gone = {name: broken.facts.get(name) for name in ("gone", "outside")}
            found += [about.words for about in scopes_of(gone)]
        elif one == TOPIC:
            found += [f"topic {name[10:].rpartition('-')[0]}" for name in partitions]
        elif one in _BROKERS and named:
            place = _BROKERS[one]
            found.append(named[min(place, len(named) - 1)])
    return list(dict.fromkeys(found))


def _fault(faults: Sequence[Event], scopes: Sequence[str], before_ns: int) -> str:
    """The newest fault before the loss, if possible one of those that hit a process of the
    scopes."""
    slots = {scope.replace(" ", "-") for scope in scopes if scope.startswith("broker ")}
    earlier = [f.body for f in faults if f.at_ns <= before_ns and isinstance(f.body, FaultInjected)]
    aimed = [b for b in earlier if slots & {t.partition("#")[0] for t in b.targets}]
    chosen = (aimed or earlier)[-1:]
    return chosen[0].fault_id if chosen else ""
