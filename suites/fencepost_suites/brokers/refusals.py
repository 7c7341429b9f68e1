"""The brokers that the active controller must refuse, and the conditions for a broker to be
Online."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Findings,
    NodeStarted,
    Rule,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    FeatureFinalized,
    HeartbeatAnswered,
    MetadataCommitted,
    SnapshotLoaded,
    SnapshotStored,
    broker_of,
)

_ERRORS = {
    "claimed": "DUPLICATE_BROKER_REGISTRATION",
    "unsupported": "UNSUPPORTED_VERSION",
    "stale": "STALE_BROKER_EPOCH",
}


@dataclass(slots=True)
class _Refusals:
    """What each controller has committed, and the reasons to refuse a broker."""

    committed: dict[str, int] = field(default_factory=dict)
    answered: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """(controller process, broker) -> the committed end at its last two accepting answers."""
    levels: dict[str, tuple[int, Cause]] = field(default_factory=dict)
    holder: dict[int, tuple[int, str]] = field(default_factory=dict)
    """broker -> offset and incarnation of its newest record."""
    former: dict[str, Cause] = field(default_factory=dict)
    """Incarnations that were replaced, with the record that replaced them."""


@final
class UnfitBrokersRefused(Rule[_Refusals]):
    """QC-15. The reasons to refuse a broker come from the committed records and from its own
    request. Its lag is measured from the offset that was committed at the answer before."""

    clause = "QC-15"
    state = _Refusals

    @on(MetadataCommitted, SnapshotLoaded, FeatureFinalized, BrokerCommitted, HeartbeatAnswered)
    def step(self, state: _Refusals, event: Event, body: Struct) -> Findings:
        match body:
            case MetadataCommitted():
                state.committed[event.process] = body.offset + 1
                if body.kind == "DeleteBroker":
                    state.former.clear()  # its processes are forgotten with it
                    state.holder.clear()
            case SnapshotLoaded():
                state.committed[event.process] = body.offset
            case FeatureFinalized():
                state.levels[body.feature] = (body.level, event.ref)
            case BrokerCommitted():
                self._committed(state, event, body)
            case HeartbeatAnswered(active=True):
                return self._answered(state, event, body)
        return NOTHING

    @staticmethod
    def _committed(state: _Refusals, event: Event, body: BrokerCommitted) -> None:
        known = state.holder.get(body.broker_id)
        if known is not None and known[0] >= body.offset:
            return
        if known is not None and known[1] != body.incarnation:
            state.former[known[1]] = event.ref
        state.holder[body.broker_id] = (body.offset, body.incarnation)

    def _answered(self, state: _Refusals, event: Event, body: HeartbeatAnswered) -> Findings:
        at = (event.process, body.broker_id)
        older, newer = state.answered.get(at, (-1, -1))
        if body.error == "NONE":
            # Two answers back: what was committed at the last one may have been committed while
            # that answer itself waited, so the broker had no interval to fetch it.
            state.answered[at] = (newer, state.committed.get(event.process, 0))
        if body.error in {_ERRORS[reason] for reason in self._against(state, body, newer)}:
            return (Exercised(event.ref, Evidence.PEER),)
        # Records committed while an answer waited for its own commit count against no broker.
        against = self._against(state, body, older)
        if not against:
            return NOTHING
        # A stale broker that is fenced is not refused, but must not be made active.
        admitted = body.error == "NONE" and (body.next_state == "ACTIVE" or "stale" not in against)
        if not admitted:
            return NOTHING
        what = " and ".join(message for message, _ in against.values())
        because = tuple(ref for _, ref in against.values() if ref is not None)
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} accepted {client} as broker {broker}, {what}",
            because,
            process=process_scope(event.process),
            client=process_scope(body.client),
            broker=broker_of(body.broker_id),
            what=what,
            reasons=tuple(against),
            behind=max(0, older - 1 - body.metadata_offset),
        )
        return (broken,)

    @staticmethod
    def _against(
        state: _Refusals, body: HeartbeatAnswered, committed: int
    ) -> dict[str, tuple[str, Cause | None]]:
        """The reasons to refuse this heartbeat, each with its words and its evidence.

        `committed` is the offset that the broker must nearly have reached.
        """
        against: dict[str, tuple[str, Cause | None]] = {}
        if body.incarnation in state.former:
            words = "whose id another process had claimed since"
            against["claimed"] = (words, state.former[body.incarnation])
        supported = _supported(body.features)
        for feature, (level, ref) in state.levels.items():
            least, most = supported.get(feature, (1, 1))
            if not least <= level <= most:
                words = f"which supports levels {least} to {most} of {feature}, enabled at {level}"
                against["unsupported"] = (words, ref)
        behind = committed - 1 - body.metadata_offset
        if body.request_epoch >= 0 and 0 <= body.most_behind < behind:
            words = f"which was {behind} records behind when it had been answered before"
            against["stale"] = (words, None)
        return against


def _supported(features: Sequence[str]) -> dict[str, tuple[int, int]]:
    """`metadata.format=1-2` as feature -> lowest and highest level."""
    found: dict[str, tuple[int, int]] = {}
    for one in features:
        name, _, levels = one.rpartition("=")
        least, _, most = levels.partition("-")
        found[name] = (int(least), int(most))
    return found


@dataclass(slots=True)
class _Joining:
    """What starting brokers have replayed and stored, and the offsets of their registrations."""

    incarnation: dict[str, str] = field(default_factory=dict)
    registered: dict[str, tuple[int, Cause]] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    checkpointed: set[str] = field(default_factory=set)
    online: set[str] = field(default_factory=set)


@final
class OnlineOnceCaughtUp(Rule[_Joining]):
    """REG-04. Exercised by the first activity of every process: it has replayed its own committed
    registration, and it checkpointed the metadata after it registered."""

    clause = "REG-04"
    state = _Joining

    @on(
        NodeStarted,
        BrokerCommitted,
        MetadataCommitted,
        SnapshotLoaded,
        SnapshotStored,
        BrokerStateChanged,
    )
    def step(self, state: _Joining, event: Event, body: Struct) -> Findings:
        match body:
            case NodeStarted(role="broker"):
                state.incarnation[event.process] = body.incarnation
            case BrokerCommitted():
                state.registered.setdefault(body.incarnation, (body.offset, event.ref))
            case MetadataCommitted():
                # If a controller shares the process, it replays the same log at its own pace.
                known = state.applied.get(event.process, -1)
                state.applied[event.process] = max(known, body.offset)
            case SnapshotLoaded():
                state.applied[event.process] = body.offset - 1
                state.checkpointed.add(event.process)
            case SnapshotStored():
                state.checkpointed.add(event.process)
            case BrokerStateChanged(new="ACTIVE") if event.process not in state.online:
                state.online.add(event.process)
                return self._online(state, event)
        return NOTHING

    @staticmethod
    def _online(state: _Joining, event: Event) -> Findings:
        applied = state.applied.get(event.process, -1)
        known = state.registered.get(state.incarnation.get(event.process, ""))
        if known is None:
            return NOTHING
        offset, ref = known
        if applied < offset:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} is Online with the metadata up to offset {applied}, and its own "
                "registration is at offset {offset}",
                (ref,),
                process=process_scope(event.process),
                applied=applied,
                offset=offset,
            )
            return (broken,)
        if event.process not in state.checkpointed:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} is Online without having checkpointed its metadata",
                (ref,),
                process=process_scope(event.process),
            )
            return (broken,)
        return (Exercised(event.ref, Evidence.PEER),)
