"""Answers of a controller: each is sent once the log that it depends on is committed (QC-08)."""

from __future__ import annotations

from functools import lru_cache
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from fencepost import Cause
from fencepost_clusters.reference.core.cluster import changes
from fencepost_clusters.reference.core.node.effects import Note, Received, Reply
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.controller.changes import CHANGES
from fencepost_clusters.reference.core.quorum.controller.policies import ControllerPolicies
from fencepost_clusters.reference.core.quorum.metadata.committed import Committed
from fencepost_clusters.reference.core.quorum.raft.raft import Raft
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import ChangeAnswered, HeartbeatAnswered


def balance_ms(settings: Settings) -> int:
    """The interval at which leaderships return to preferred replicas; 0: never."""
    if not settings.ms("auto.leader.rebalance.enable"):
        return 0
    return settings.ms("leader.imbalance.check.interval.ms")


@lru_cache
def _words(incarnation: UUID | None) -> str:
    """The same for one heartbeat after the other."""
    return str(incarnation or "")


class _Waiting(Struct, frozen=True, kw_only=True):
    """An answer that may be sent once all records below `offset` are committed.

    `active`: it was decided by an active controller.
    """

    offset: int
    received: Received
    answer: m.Response
    event: HeartbeatAnswered | ChangeAnswered
    active: bool
    cause: Cause | None


class Answers:
    """See the module."""

    def __init__(
        self,
        settings: Settings,
        raft: Raft,
        committed: Committed,
        policies: ControllerPolicies,
        out: Outbox,
    ) -> None:
        self._settings = settings
        self._raft = raft
        self._committed = committed
        self._policies = policies
        self._out = out
        self._waiting: list[_Waiting] = []
        self._balance_ms = balance_ms(settings)
        self._most_behind = settings.ms("metadata.max.lag.records")

    def to_heartbeat(
        self, received: Received, answer: m.BrokerHeartbeatResponse, log_end: int, active: bool
    ) -> None:
        """Answers a heartbeat once the log is committed up to `log_end`."""
        self._wait(received, answer, log_end, self._heartbeat_event(received, answer, active))

    def to_change(self, received: Received, answer: m.Response, log_end: int, offset: int) -> None:
        """Answers a change once the log is committed up to `log_end`.

        `offset` is that of the change's last record, -1 if there is none.
        """
        event = ChangeAnswered(
            api=CHANGES.name(received.message),
            client=received.client,
            error=next(changes.errors(answer), Error.NONE).name,
            offset=offset,
            high_watermark=-1,
            controller_epoch=self._raft.epoch,
        )
        self._wait(received, answer, log_end, event)

    def _wait(
        self,
        received: Received,
        answer: m.Response,
        log_end: int,
        event: HeartbeatAnswered | ChangeAnswered,
    ) -> None:
        active = isinstance(event, ChangeAnswered) or event.active
        offset = self._policies.term.answer_offset(log_end)
        self._waiting.append(
            _Waiting(
                offset=offset,
                received=received,
                answer=answer,
                event=event,
                active=active,
                cause=self._out.cause,
            )
        )

    def send_committed(self) -> None:
        """Sends the answers whose log is committed by now."""
        if not self._waiting:
            return
        # In the order of their arrival, which is the order of their decisions.
        ready = [w for w in self._waiting if w.offset <= self._raft.high_watermark]
        if ready:
            self._waiting = [w for w in self._waiting if w.offset > self._raft.high_watermark]
            for one in ready:
                self._send(one)

    def refuse_waiting(self) -> None:
        """Refuses the waiting requests: this controller is no longer active."""
        refused, self._waiting = self._waiting, []
        for one in refused:
            self.refuse(one.received, one.cause)

    def _send(self, waiting: _Waiting) -> None:
        message = waiting.received.message
        # The record of another process may have been committed while this answer waited. Were the
        # grant sent now, two processes would hold a lease for one id.
        if isinstance(message, m.BrokerHeartbeatRequest) and self._lost_id(message):
            # The heartbeat was granted before another process took the id.
            refusal = self._refusal(
                Error.DUPLICATE_BROKER_REGISTRATION, BrokerState.FENCED, self._settings.node_id
            )
            self._refuse_heartbeat(waiting.received, refusal, waiting.active, waiting.cause)
            return
        event = waiting.event
        if isinstance(event, ChangeAnswered):
            event = replace(event, high_watermark=self._raft.high_watermark)
        self._out.add(Note(event, waiting.cause))
        self._out.add(Reply(waiting.received.request_id, waiting.answer))

    def _lost_id(self, asked: m.BrokerHeartbeatRequest) -> bool:
        """Whether the committed metadata names another process for the id by now (QC-19)."""
        return self._policies.registration.has_lost_id(
            self._committed.image, asked.broker_id, asked.incarnation_id
        )

    def refuse(self, received: Received, cause: Cause | None) -> None:
        """Answers NOT_CONTROLLER; names the active controller if the answer has a field for it
        (QC-22)."""
        message = received.message
        if not isinstance(message, m.BrokerHeartbeatRequest):
            answer = CHANGES.refused(message, Error.NOT_CONTROLLER)
            self._out.add(Reply(received.request_id, answer))
            return
        leader = -1 if self._raft.leader is None else self._raft.leader
        refusal = self._refusal(Error.NOT_CONTROLLER, BrokerState.UNKNOWN, leader)
        self._refuse_heartbeat(received, refusal, False, cause)

    def _refusal(self, error: Error, state: BrokerState, leader: int) -> m.BrokerHeartbeatResponse:
        return m.BrokerHeartbeatResponse(
            error_code=error,
            active_controller_id=leader,
            next_state=state,
            broker_epoch=-1,
            lease_end_time_ms=-1,
            controller_epoch=self._raft.epoch,
        )

    def _refuse_heartbeat(
        self,
        received: Received,
        refusal: m.BrokerHeartbeatResponse,
        active: bool,
        cause: Cause | None,
    ) -> None:
        self._out.add(Note(self._heartbeat_event(received, refusal, active), cause))
        self._out.add(Reply(received.request_id, refusal))

    def _heartbeat_event(
        self, received: Received, answer: m.BrokerHeartbeatResponse, active: bool
    ) -> HeartbeatAnswered:
        asked = received.message
        assert isinstance(asked, m.BrokerHeartbeatRequest), asked
        return HeartbeatAnswered(
            client=received.client,
            broker_id=asked.broker_id,
            incarnation=_words(asked.incarnation_id),
            request_epoch=asked.broker_epoch,
            broker_epoch=answer.broker_epoch,
            error=Error(answer.error_code).name,
            next_state=BrokerState.read(answer.next_state).label,
            lease_start_ms=asked.lease_start_time_ms,
            lease_end_ms=answer.lease_end_time_ms,
            lease_period_ms=self._settings.lease_ms,
            controller_epoch=self._raft.epoch,
            active_controller=answer.active_controller_id,
            active=active,
            balance_ms=self._balance_ms,
            metadata_offset=asked.cur_metadata_offset,
            target_state=BrokerState.read(asked.target_state).label,
            features=tuple(f"{f.name}={f.min_level}-{f.max_level}" for f in asked.features),
            most_behind=self._most_behind,
        )
