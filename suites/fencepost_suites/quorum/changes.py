"""Changes of the metadata: seen once they are committed (QC-08), dropped by a controller that is
deposed (QC-09), and kept over a failover (QC-28)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Exercised,
    Fact,
    Facts,
    Findings,
    ProcessExited,
    Rule,
    RunEnd,
    judged,
    on,
    process_scope,
    violated,
    whole_run,
)
from fencepost_kafka import (
    AdminCompleted,
    BrokerCommitted,
    ChangeAnswered,
    ControllerElected,
    ControllerResigned,
    HeartbeatAnswered,
    IsrChangeAnswered,
    MetadataCommitted,
    MetadataTruncated,
    PartitionCommitted,
    ReadCompleted,
    SnapshotLoaded,
    StateReverted,
    broker_of,
    partition_of,
    topic_of,
)
from fencepost_suites.common.keys import Keys, by_life
from fencepost_suites.quorum.epochs import said

REVERTED_WITHIN_NS: Final = 1_000 * MS
"""How long a controller may take to revert its state, once it has resigned."""


@dataclass(slots=True)
class _Stored:
    """All ISRs of one partition that were ever committed, with the newest epoch of each; or, for
    the whole run, what each node has told as committed."""

    isrs: dict[frozenset[int], int] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    """process -> the newest offset that it has told as committed."""

    def visible(self, process: str, body: ChangeAnswered) -> bool:
        """Whether the record of a change is committed as its controller answers, by the high
        watermark that it names, and by the records that it told before, if any node tells these."""
        told = self.told.get(process, -1) if self.told else body.offset
        return body.offset < body.high_watermark and body.offset <= told  # the first is exclusive


def _by_partition_of_change(event: Event) -> Keys:
    body = event.body
    if isinstance(body, PartitionCommitted | IsrChangeAnswered):
        return ((body.topic, body.partition),)
    return whole_run(event)


@final
class VisibleOnceCommitted(Rule[_Stored]):
    """QC-08. The controller's own evidence is its high watermark at the answer, and that it had
    told the record as committed by then. The leader's is that it was granted an ISR which some node
    has committed by then."""

    clause = "QC-08"
    keys = staticmethod(_by_partition_of_change)
    state = _Stored

    @on(ChangeAnswered, IsrChangeAnswered, PartitionCommitted, MetadataCommitted, SnapshotLoaded)
    def step(self, state: _Stored, event: Event, body: Struct) -> Findings:
        match body:
            case MetadataCommitted():
                told = max(body.offset, state.told.get(event.process, -1))
                state.told[event.process] = told
            case SnapshotLoaded():
                told = max(body.offset - 1, state.told.get(event.process, -1))
                state.told[event.process] = told
            case PartitionCommitted():
                isr = frozenset(body.isr)
                state.isrs[isr] = max(body.leader_epoch, state.isrs.get(isr, -1))
            case ChangeAnswered() if body.error == "NONE" and body.offset >= 0:
                if state.visible(event.process, body):
                    return (Exercised(event.ref, Evidence.SELF),)
                broken = violated(
                    event.ref,
                    Evidence.SELF,
                    "{process} answered {api} as done while its record at offset {offset} was not "
                    "committed (high watermark {high_watermark})",
                    process=process_scope(event.process),
                    api=body.api,
                    offset=body.offset,
                    high_watermark=body.high_watermark,
                )
                return (broken,)
            case IsrChangeAnswered() if body.error == "NONE" and body.isr:
                # Some node has committed this very ISR, in this epoch or a later one.
                if state.isrs.get(frozenset(body.isr), -1) >= body.leader_epoch:
                    return (Exercised(event.ref, Evidence.PEER),)
                broken = violated(
                    event.ref,
                    Evidence.PEER,
                    "{process} was granted the ISR {isr} of {partition} before any node had "
                    "committed it",
                    process=process_scope(event.process),
                    isr=tuple(body.isr),
                    partition=partition_of(body),
                )
                return (broken,)
        return NOTHING


@dataclass(slots=True)
class _Deposed:
    """The steps that a former active controller has still to do."""

    resigned: Cause | None = None
    at_ns: int = 0
    epoch: int = -1
    deposed: bool = False
    suspects: list[Deadline] = field(default_factory=list)

    def late(self, at_ns: int) -> None:
        """It has kept its state until then."""
        if self.resigned is None or at_ns - self.at_ns <= REVERTED_WITHIN_NS:
            return
        process = self.resigned.process
        broken = violated(
            self.resigned,
            Evidence.PEER,
            "{process} resigned in epoch {epoch}, and had not reverted to the committed state "
            "{after_ns} later",
            process=process_scope(process),
            epoch=self.epoch,
            after_ns=at_ns - self.at_ns,
        )
        late = Deadline(broken, (process,), self.at_ns, at_ns, REVERTED_WITHIN_NS)
        self.suspects.append(late)


@final
class DeposedControllerReverts(Rule[_Deposed]):
    """QC-09. Exercised when a former active controller drops records that it had written and that
    were never committed: without the protection its state would include them. It reverts as it
    resigns, so that little time is allowed."""

    clause = "QC-09"
    keys = staticmethod(by_life)
    state = _Deposed

    @on(ControllerElected, ControllerResigned, StateReverted, MetadataTruncated, ProcessExited)
    def step(self, state: _Deposed, event: Event, body: Struct) -> Findings:
        match body:
            case ControllerResigned():
                state.late(event.at_ns)
                state.resigned, state.at_ns = event.ref, event.at_ns
                state.epoch, state.deposed = body.epoch, True
            case ProcessExited():
                state.late(event.at_ns)
                state.resigned = None
            case StateReverted():
                state.late(event.at_ns)
                because = () if state.resigned is None else (state.resigned,)
                state.resigned = None
                if body.offset > body.high_watermark:
                    broken = violated(
                        event.ref,
                        Evidence.SELF,
                        "{process} resigned in epoch {epoch} and kept state up to offset "
                        "{offset}, of which only {high_watermark} was committed",
                        because,
                        process=process_scope(event.process),
                        epoch=body.epoch,
                        offset=body.offset,
                        high_watermark=body.high_watermark,
                    )
                    return (broken,)
            case ControllerElected():
                was, state.resigned, state.deposed = state.resigned, None, False
                if was is not None:
                    broken = violated(
                        event.ref,
                        Evidence.SELF,
                        "{process} was elected in epoch {epoch} without having reverted to the "
                        "committed state after epoch {other_epoch}",
                        (was,),
                        process=process_scope(event.process),
                        epoch=body.epoch,
                        other_epoch=state.epoch,
                    )
                    return (broken,)
            case MetadataTruncated():
                dropped = body.from_offset < body.log_end
                if state.deposed and dropped and body.from_offset >= body.high_watermark:
                    state.deposed = False
                    return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING

    def end(self, state: _Deposed, end: RunEnd) -> Findings:
        state.late(end.ended_at_ns)
        return judged(state.suspects, end)


@dataclass(slots=True)
class _Changes:
    """The newest acknowledged change, and the topics whose creation was acknowledged to clients."""

    offset: int = -1
    by: Cause | None = None
    what: Facts = field(default_factory=dict)
    epoch: int = -1
    won: dict[int, tuple[int, Cause]] = field(default_factory=dict)
    """epoch -> where the log of its winner ended, and the election."""
    topics: dict[str, int] = field(default_factory=dict)
    """topic -> the newest controller's epoch when its creation was acknowledged."""
    own: dict[str, tuple[int, Cause]] = field(default_factory=dict)
    """process of a controller -> the newest change that it has acknowledged itself."""


@final
class ChangesSurviveFailover(Rule[_Changes]):
    """QC-28. A new controller's log must include every acknowledged change and every registration
    that was committed or granted, whenever the acknowledgement is told: it names its epoch. A
    controller that drops what its process has acknowledged shows the same, even if its successor
    says nothing of its own log. A client must find its topic after the failover."""

    clause = "QC-28"
    state = _Changes

    @on(
        *(ChangeAnswered, HeartbeatAnswered, BrokerCommitted, ControllerElected, MetadataTruncated),
        *(AdminCompleted, ReadCompleted),
    )
    def step(self, state: _Changes, event: Event, body: Struct) -> Findings:
        match body:
            case ChangeAnswered() if body.error == "NONE":
                what: dict[str, Fact] = {"what": f"an acknowledged {body.api}", "api": body.api}
                return self._answered(state, event, body.controller_epoch, body.offset, what)
            # A broker's epoch is the offset of the record of its registration.
            case HeartbeatAnswered(request_epoch=-1, error="NONE", active=True):
                granted = f"the registration of broker {body.broker_id}"
                what = {"what": granted, "broker": broker_of(body.broker_id)}
                return self._answered(state, event, body.controller_epoch, body.broker_epoch, what)
            case MetadataTruncated():
                return self._dropped(state, event, body)
            case BrokerCommitted():
                registered = f"the registration of broker {body.broker_id}"
                broker = broker_of(body.broker_id)
                self._acknowledge(state, event, body.offset, what=registered, broker=broker)
            case ControllerElected() if body.epoch > state.epoch:
                return self._elected(state, event, body)
            case AdminCompleted(api="create_topic", outcome="ok"):
                state.topics[body.subject] = state.epoch
            case AdminCompleted(api="delete_topic") if body.outcome != "failed":
                state.topics.pop(body.subject, None)
            case ReadCompleted():
                return self._read(state, event, body)
        return NOTHING

    @staticmethod
    def _acknowledge(state: _Changes, event: Event, offset: int, **what: Fact) -> None:
        if offset > state.offset:
            state.offset, state.by, state.what = offset, event.ref, what

    @staticmethod
    def _answered(
        state: _Changes, event: Event, term: int, offset: int, what: dict[str, Fact]
    ) -> Findings:
        """A controller acknowledges a change of its term."""
        ChangesSurviveFailover._acknowledge(state, event, offset, **what)
        if offset > state.own.get(event.process, (-1,))[0]:
            state.own[event.process] = offset, event.ref
        # It had committed the change in its own term, so a successor that was elected before the
        # acknowledgement is told has it, too.
        for epoch, (log_end, ref) in state.won.items():
            if epoch > term >= 0 and offset >= log_end:
                broken = violated(
                    event.ref,
                    Evidence.PEER,
                    "{process} tells of {what} at offset {offset} in epoch {other_epoch}, and "
                    "{other} had taken over in epoch {epoch} with a log that ends at {log_end}",
                    (ref,),
                    process=process_scope(event.process),
                    offset=offset,
                    other_epoch=term,
                    other=process_scope(ref.process),
                    epoch=epoch,
                    log_end=log_end,
                    **what,
                )
                return (broken,)
        return NOTHING

    @staticmethod
    def _dropped(state: _Changes, event: Event, body: MetadataTruncated) -> Findings:
        """A controller's process drops the end of its log."""
        offset, because = state.own.get(event.process, (-1, None))
        if because is None or offset < body.from_offset:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} dropped its metadata from offset {from_offset} on, and had acknowledged a "
            "change at offset {offset}",
            (because,),
            process=process_scope(event.process),
            from_offset=body.from_offset,
            offset=offset,
        )
        return (broken,)

    @staticmethod
    def _elected(state: _Changes, event: Event, body: ControllerElected) -> Findings:
        state.epoch = body.epoch
        state.won[body.epoch] = said(body.log_end), event.ref
        if state.by is None or body.log_end < 0:
            return NOTHING
        if body.log_end > state.offset:
            return (Exercised(event.ref, Evidence.PEER),)
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} took over in epoch {epoch} with a log that ends at {log_end}: {what} at "
            "offset {offset} is lost",
            (state.by,),
            process=process_scope(event.process),
            epoch=body.epoch,
            log_end=body.log_end,
            offset=state.offset,
            **state.what,
        )
        return (broken,)

    @staticmethod
    def _read(state: _Changes, event: Event, body: ReadCompleted) -> Findings:
        before = state.topics.get(body.topic)
        # No controller was elected since, so the reading shows nothing of a failover.
        if before is None or before == state.epoch:
            return NOTHING
        if body.outcome == "ok":
            return (Exercised(event.ref, Evidence.CLIENT),)
        # A reading may fail for many reasons. Only this one says that the topic is gone.
        if "UNKNOWN_TOPIC" not in body.error:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.CLIENT,
            "the topic {topic}, which was acknowledged, is unknown after a failover",
            topic=topic_of(body.topic),
            client=process_scope(event.process),
        )
        return (broken,)
