"""The brokers that the active controller must refuse, and the conditions for a broker to be
Online."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct, structs

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
    BrokerDeleted,
    BrokerStateChanged,
    ControllerElected,
    FeatureFinalized,
    HeartbeatAnswered,
    MetadataCommitted,
    SnapshotLoaded,
    SnapshotStored,
    broker_of,
)
from fencepost_kafka.committed import Brokers

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
    by_any: dict[int, tuple[int, int]] = field(default_factory=dict)
    """broker -> the same of all controllers together."""
    elected: dict[str, int] = field(default_factory=dict)
    """controller process -> the committed end when it was elected last."""
    levels: dict[str, tuple[int, Cause]] = field(default_factory=dict)
    brokers: Brokers = field(default_factory=Brokers)
    holder: dict[int, str] = field(default_factory=dict)
    """broker -> the incarnation in its newest record."""
    former: dict[str, tuple[int, int, Cause]] = field(default_factory=dict)
    """An incarnation that was replaced -> the broker, and the record that replaced it with its
    offset."""

    def known_to(self, controller: str, broker: int) -> tuple[int, int]:
        """The committed ends at the last two accepting answers to a broker, as far as this
        controller knew of them. What was committed under its predecessor counts from its second
        answer on: at the first one, it has not heard from the broker before."""
        older, newer = self.answered.get((controller, broker), (-1, -1))
        if older < 0 <= newer:
            older = min(self.by_any[broker][0], self.elected.get(controller, -1))
        return older, newer

    def accepted(self, controller: str, broker: int) -> None:
        """A controller accepts a heartbeat."""
        # Two answers back: what was committed at the last one may have been committed while that
        # answer itself waited, so the broker had no interval to fetch it.
        end = self.committed.get(controller, 0)
        at = (controller, broker)
        self.answered[at] = (self.answered.get(at, (-1, -1))[1], end)
        self.by_any[broker] = (self.by_any.get(broker, (-1, -1))[1], end)

    def registered(self, event: Event, body: BrokerCommitted) -> None:
        """A record names who has an id."""
        news, _ = self.brokers.take(body)
        if not news:
            return
        known = self.holder.get(body.broker_id)
        if known is not None and known != body.incarnation:
            self.former[known] = body.broker_id, body.offset, event.ref
        self.holder[body.broker_id] = body.incarnation

    def forget(self, body: BrokerDeleted) -> None:
        """A broker is deleted, and its processes are forgotten with it."""
        broker, offset = body.broker_id, body.offset
        if self.brokers.forget(body):
            del self.holder[broker]
        gone = [one for one, (of, at, _) in self.former.items() if of == broker and at < offset]
        for one in gone:
            del self.former[one]


@final
class UnfitBrokersRefused(Rule[_Refusals]):
    """QC-15. The reasons to refuse a broker come from the committed records and from its own
    request. Its lag is measured from the offset that was committed at the answer before."""

    clause = "QC-15"
    state = _Refusals

    @on(
        MetadataCommitted,
        SnapshotLoaded,
        FeatureFinalized,
        BrokerCommitted,
        BrokerDeleted,
        ControllerElected,
        HeartbeatAnswered,
    )
    def step(self, state: _Refusals, event: Event, body: Struct) -> Findings:
        match body:
            case MetadataCommitted():
                state.committed[event.process] = body.offset + 1
            case SnapshotLoaded():
                state.committed[event.process] = body.offset
            case FeatureFinalized():
                state.levels[body.feature] = (body.level, event.ref)
            case BrokerCommitted():
                state.registered(event, body)
            case BrokerDeleted():
                state.forget(body)
            case ControllerElected():
                state.elected[event.process] = state.committed.get(event.process, 0)
                for at in [at for at in state.answered if at[0] == event.process]:
                    del state.answered[at]
            case HeartbeatAnswered(active=True):
                return self._answered(state, event, body)
        return NOTHING

    def _answered(self, state: _Refusals, event: Event, body: HeartbeatAnswered) -> Findings:
        older, newer = state.known_to(event.process, body.broker_id)
        if body.error == "NONE":
            state.accepted(event.process, body.broker_id)
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
            against["claimed"] = (words, state.former[body.incarnation][2])
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


class _Registered(Struct, frozen=True):
    """The record that registers an incarnation."""

    offset: int
    epoch: int
    ref: Cause


@dataclass(slots=True)
class _Joining:
    """What starting brokers have replayed and stored, and the offsets of their registrations."""

    incarnation: dict[str, str] = field(default_factory=dict)
    """process -> its incarnation, as a controller has answered it, or else as the process says."""
    combined: set[str] = field(default_factory=set)
    """The processes with a controller, which replays the same log at its own pace."""
    registered: dict[str, _Registered] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    checkpointed: dict[str, int] = field(default_factory=dict)
    """process -> the end of the metadata in its newest snapshot."""
    had: dict[str, int] = field(default_factory=dict)
    """process -> the end of the metadata that it had when it was registered."""
    online: set[str] = field(default_factory=set)

    def committed(self, event: Event, body: BrokerCommitted) -> None:
        """A record about a broker. One with a new epoch that leaves it fenced registers it anew,
        as after its deletion."""
        known = self.registered.get(body.incarnation)
        anew = known is not None and body.fenced and body.broker_epoch > known.epoch
        if known is None or (anew and body.offset > known.offset):
            new = _Registered(body.offset, body.broker_epoch, event.ref)
            self.registered[body.incarnation] = new
        elif body.broker_epoch > known.epoch:
            self.registered[body.incarnation] = structs.replace(known, epoch=body.broker_epoch)


@final
class OnlineOnceCaughtUp(Rule[_Joining]):
    """REG-04. Exercised by the first activity of every process: it has replayed its own committed
    registration, and it had checkpointed the metadata that it had when it was registered. Whenever
    it is Online again, it has replayed its newest registration. Which registration is its own is
    the controller's word: a process that named another incarnation was Online by any metadata."""

    clause = "REG-04"
    state = _Joining

    @on(
        NodeStarted,
        HeartbeatAnswered,
        BrokerCommitted,
        MetadataCommitted,
        SnapshotLoaded,
        SnapshotStored,
        BrokerStateChanged,
    )
    def step(self, state: _Joining, event: Event, body: Struct) -> Findings:
        process = event.process
        match body:
            case NodeStarted(role="broker"):
                state.incarnation.setdefault(process, body.incarnation)
            case HeartbeatAnswered(error="NONE") if body.client:
                state.incarnation[body.client] = body.incarnation
            case NodeStarted(role="controller"):
                state.combined.add(process)
            case BrokerCommitted():
                state.committed(event, body)
            case MetadataCommitted():
                # If a controller shares the process, it replays the same log at its own pace.
                state.applied[process] = max(body.offset, state.applied.get(process, -1))
            case SnapshotLoaded():
                state.applied[process] = body.offset - 1
                state.checkpointed[process] = body.offset
            case SnapshotStored():
                state.checkpointed[process] = body.offset
            case BrokerStateChanged(old="INITIAL", new="FENCED") if process not in state.combined:
                state.had[process] = state.applied.get(process, -1) + 1
            case BrokerStateChanged(new="ACTIVE"):
                return self._online(state, event)
        return NOTHING

    @staticmethod
    def _online(state: _Joining, event: Event) -> Findings:
        process = event.process
        first = process not in state.online
        state.online.add(process)
        applied = state.applied.get(process, -1)
        known = state.registered.get(state.incarnation.get(process, ""))
        if known is None:
            return NOTHING
        if applied < known.offset:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} is Online with the metadata up to offset {applied}, and its own "
                "registration is at offset {offset}",
                (known.ref,),
                process=process_scope(process),
                applied=applied,
                offset=known.offset,
            )
            return (broken,)
        if not first:
            return NOTHING
        if state.checkpointed.get(process, -1) < state.had.get(process, 0):
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} is Online without having checkpointed its metadata",
                (known.ref,),
                process=process_scope(process),
            )
            return (broken,)
        return (Exercised(event.ref, Evidence.PEER),)
