"""A broker's life: registration, heartbeats, lease, fencing, shutdown (KIP-631's states).

The machine is the table `_MOVES`:

    INITIAL --registered--> FENCED --unfenced--> ACTIVE --lease_expired, refused--> FENCED
    any but FENCED --taken_over--> FENCED
    any --shutdown_granted, shutdown_requested, shutdown_timeout--> SHUTDOWN

The problem. A controller gives a broker's leaderships away once the broker's lease is over. By then
the broker must have stopped by itself: it may be paused, or cut off from every controller, and
nobody can tell it.

The rules:

1. The lease is measured from the *sending* of the granting heartbeat, on this node's monotonic
   clock. The controller measures from the arrival, which is later, so the lease never ends later
   here than there. No two clocks are compared: only the length of the lease is taken from the
   answer.
2. One heartbeat is in flight at a time. It has a call id, so the answer to one that was given up is
   not applied.
3. Whoever drives the node does a Tick that is due before it gives the node anything else. So a
   broker that was paused is fenced before it sees the answer that would renew its lease: another
   controller may have fenced it meanwhile.
4. An answer counts for the state in which its heartbeat was sent. If the broker was fenced since,
   it needs another epoch, and asks for that at once (QC-20). An answer whose lease is over already
   makes no broker active.
5. The controller decides: a broker is active only by an answer, and ends only by a grant, or once
   the time to stop is over. `lost` is for good: a process whose id another one took never registers
   again, though a controller that has not heard of that asks it to (QC-19).

What is not done. The lease has no allowance for clocks that run at different rates. A refusal for
another reason, such as a version that is too old, fences the broker and keeps its epoch: it is
still the registered one.

See docs/decisions/43-self-fencing.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from msgspec import Struct

from fencepost import MS
from fencepost_clusters.reference.core.node.deadlines import earliest
from fencepost_clusters.reference.core.node.effects import Call, Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.quorum.broker.policies import (
    BrokerPolicies,
    StateReason,
    StopReason,
)
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState, global_state
from fencepost_clusters.reference.core.quorum.metadata import features
from fencepost_clusters.reference.core.quorum.raft.electorate import Voters, any_known, known
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import (
    BrokerStateChanged,
    BrokerStopping,
    HeartbeatRefused,
    HeartbeatSent,
    LeaseGranted,
)

RETRY_NS: Final = 50 * MS
_INITIAL, _FENCED, _ACTIVE = BrokerState.INITIAL, BrokerState.FENCED, BrokerState.ACTIVE
_SHUTDOWN = BrokerState.SHUTDOWN
_ANY: Final = frozenset({_INITIAL, _FENCED, _ACTIVE, _SHUTDOWN})
_MOVES: Final[Mapping[StateReason, tuple[frozenset[BrokerState], BrokerState]]] = {
    "registered": (frozenset({_INITIAL}), _FENCED),
    "unfenced": (frozenset({_FENCED}), _ACTIVE),
    "lease_expired": (frozenset({_ACTIVE}), _FENCED),
    # A broker that is fenced already keeps its state, and says nothing of a refusal.
    "refused": (frozenset({_ACTIVE}), _FENCED),
    "taken_over": (_ANY - {_FENCED}, _FENCED),
    "shutdown_granted": (_ANY, _SHUTDOWN),
    "shutdown_requested": (_ANY, _SHUTDOWN),
    "shutdown_timeout": (_ANY, _SHUTDOWN),
}
"""Reason -> the states that it moves, and to which. In any other state it moves nothing."""


class _Beat(Struct, frozen=True):
    """A heartbeat in flight."""

    call: int
    target: int
    sent_ns: int
    """By the monotonic clock: the lease begins here."""
    lease_start_ms: int
    """The same moment by the wall clock, as the heartbeat says it. The controller adds the length
    to it, and here it is only subtracted again."""
    state: BrokerState
    """The broker's state then: the answer is about a broker in this state."""


class Identity(Struct, frozen=True):
    """A broker's process as it registers: its incarnation, and where it listens."""

    incarnation: UUID
    listeners: tuple[m.Listener, ...]


class Lifecycle:
    """See the module."""

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        *,
        controllers: Voters,
        policies: BrokerPolicies,
        out: Outbox,
        now: Instant,
    ) -> None:
        """`controllers` are the voters as the node knows them, kept up to date by others."""
        self.state = BrokerState.INITIAL
        """Never INITIAL again once registered: after a refusal the broker registers as a FENCED
        one."""
        self.epoch = -1
        """The broker epoch of the newest accepted heartbeat; -1: the next heartbeat registers."""
        self.incarnation = identity.incarnation
        """The identity of this process. A restart has another one, a second registration the
        same."""
        self.lease_ends_ns = 0
        """On the monotonic clock of this node; 0: never granted. It never falls, since answers to
        heartbeats of before may name an earlier end. It counts only while the state is ACTIVE."""
        self.was_active = False
        """Whether it ever was. Only policies of planted defects ask."""
        self.lost = False
        """Whether another process took the id: this process never acts again."""
        self.granted_shutdown = False
        """Whether the process may end; it does so within the step in which this becomes true."""
        self._settings = settings
        self._listeners = identity.listeners
        self._recovered = False
        """Whether the logs are recovered: before that, no heartbeat leaves (REG-02)."""
        self._controllers = controllers
        self._policies = policies
        self._out = out
        self._next_ns = now.monotonic_ns
        """When the next heartbeat is due, if none is in flight."""
        self._beat: _Beat | None = None
        """The one in flight. It is given up when its call fails, and never by time here."""
        self._target = -1
        """The controller to ask while no leader is known; -1: the first one that is known."""
        self._stop: tuple[int, StopReason] | None = None
        """After a request to stop: when it ends even if no controller has granted the shutdown."""

    # ------------------------------------------------------------------------------- questions

    def serving(self, now: Instant) -> bool:
        """Whether client requests may be processed: active, and within the lease (QC-14, QC-17)."""
        holds_lease = self.state is BrokerState.ACTIVE and not self._session_over(now)
        return self._policies.serves_clients(holds_lease, self.was_active)

    def finishing(self, now: Instant) -> bool:
        """Whether client requests that wait may be carried out: under the same conditions."""
        return self.serving(now)

    def _session_over(self, now: Instant) -> bool:
        """Whether the heartbeat session, which is the lease, has run out (REG-06)."""
        return now.monotonic_ns >= self._policies.session_ends_ns(self.lease_ends_ns)

    def _may_ask(self) -> bool:
        """Whether a heartbeat may leave: there is one at a time."""
        return self._beat is None and self._policies.may_register(self._recovered)

    def deadline_ns(self) -> int | None:
        """When a Tick is wanted next."""
        active = self.state is BrokerState.ACTIVE
        return earliest(
            (
                # Without a known controller there is nobody to ask: the answer to a fetch of the
                # metadata will name them.
                self._next_ns if self._may_ask() and any_known(self._controllers) else None,
                self._policies.session_ends_ns(self.lease_ends_ns) if active else None,
                self._stop[0] if self._stop is not None else None,
            )
        )

    # ------------------------------------------------------------------------------ time passes

    def tick(self, now: Instant, leader: int | None, applied: int) -> None:
        """Ends the lease, or sends a heartbeat, if due; `applied` is the offset of the replayed
        metadata."""
        # The order guards the lease: first it ends, then the broker stops, and only then a
        # heartbeat leaves. So the heartbeat says the state that the broker is in.
        if self._session_over(now):
            self._move("lease_expired")
        if self._stop is not None and not self.granted_shutdown:
            ends_ns, reason = self._stop
            if now.monotonic_ns >= ends_ns:
                self._grant_shutdown(reason)
        if self._may_ask() and now.monotonic_ns >= self._next_ns:
            self._ask(now, leader, applied)

    def recovered(self) -> None:
        """The logs are recovered, so the broker may register (REG-02)."""
        self._recovered = True

    def hurry(self, now: Instant) -> None:
        """Makes the next heartbeat due at once."""
        self._next_ns = min(self._next_ns, now.monotonic_ns)

    def stop(self, now: Instant) -> None:
        """SIGTERM or SIGINT: asks for SHUTDOWN, and ends without a grant when the configured time
        is over."""
        if self._stop is None:
            limit_ms = self._settings.ms("controlled.shutdown.timeout.ms")
            self._stop = self._policies.stops_without_grant(now.monotonic_ns, limit_ms * MS)
            self.hurry(now)
            self._out.note(
                BrokerStopping(
                    broker_id=self._settings.node_id,
                    state=self.state.label,
                    global_state=global_state(self.state, True),
                    limit_ms=limit_ms,
                )
            )
        # No controller knows this process, so there is no leadership to hand over.
        if self.state is BrokerState.INITIAL:
            self.granted_shutdown = True  # not registered yet: it just ends
        # No controller will grant it anything: another process has the id.
        elif self.lost:
            self._grant_shutdown("shutdown_requested")

    def taken_over(self) -> None:
        """The committed metadata names another process for this id (QC-19)."""
        self.lost = True
        self._move("taken_over")

    def deleted(self, now: Instant) -> None:
        """The committed metadata has no broker of this id any more: it registers again (QC-26)."""
        self.epoch = -1
        self._move("refused")
        self.hurry(now)

    def _move(self, reason: StateReason) -> None:
        """The transition that a reason makes from the present state, if it makes one."""
        moved, state = _MOVES[reason]
        if self.state not in moved:
            return
        if reason == "registered":
            state = self._policies.registered_state
        old, self.state = self.state, state
        self.was_active = self.was_active or state is BrokerState.ACTIVE
        self._out.note(
            BrokerStateChanged(
                broker_id=self._settings.node_id,
                old=old.label,
                new=state.label,
                broker_epoch=self.epoch,
                reason=reason,
                global_state=global_state(state, self._stop is not None),
            )
        )

    def _grant_shutdown(self, reason: StateReason) -> None:
        self.granted_shutdown = True
        self._move(reason)

    # ------------------------------------------------------------------------------- heartbeats

    def _ask(self, now: Instant, leader: int | None, applied: int) -> None:
        target = self._controller(leader)
        if target is None:
            return  # unknown until an answer to a fetch of the metadata names them
        goal = BrokerState.ACTIVE if self._stop is None else BrokerState.SHUTDOWN
        request = m.BrokerHeartbeatRequest(
            target_state=goal,
            broker_id=self._settings.node_id,
            broker_epoch=self.epoch,
            lease_start_time_ms=now.wall_ms,
            cur_metadata_offset=applied - 1,
            listeners=self._listeners,
            incarnation_id=self.incarnation,
            current_state=self.state,
            features=features.mine(self._settings),
        )
        call = self._out.next_call()
        self._out.note(
            HeartbeatSent(
                broker_id=self._settings.node_id,
                broker_epoch=self.epoch,
                controller=target,
                correlation=call,
                target_state=goal.label,
                lease_start_ms=now.wall_ms,
                metadata_offset=applied - 1,
            )
        )
        # Up to three heartbeats fit into a lease, so that the loss of one answer does not cost the
        # lease; but none is given up before the next one would be due.
        timeout_ms = max(self._settings.heartbeat_ms, self._settings.lease_ms // 3)
        self._out.add(
            Call(
                call_id=call,
                address=self._controllers[target],
                channel="heartbeat",
                message=request,
                timeout_ms=timeout_ms,
            )
        )
        self._beat = _Beat(call, target, now.monotonic_ns, now.wall_ms, self.state)

    def answered(self, call_id: int, answer: m.Response, now: Instant) -> bool:
        """Applies a heartbeat's answer; False if the call was not the newest heartbeat."""
        beat = self._beat
        if beat is None or beat.call != call_id:
            return False
        assert isinstance(answer, m.BrokerHeartbeatResponse), answer
        self._beat = None
        # The interval is counted from the sending, or each round trip would lengthen it.
        self._next_ns = beat.sent_ns + self._settings.heartbeat_ms * MS
        if answer.error_code == Error.NONE:
            self._accepted(answer, beat, now)
        else:
            self._refused(Error(answer.error_code), answer, beat.target, now)
        return True

    def failed(self, call_id: int, now: Instant) -> None:
        """A heartbeat got no answer, if the call was one."""
        if self._beat is None or self._beat.call != call_id:
            return
        self._next_target(self._beat.target)
        self._beat = None
        self._next_ns = now.monotonic_ns + RETRY_NS

    def _next_target(self, tried: int) -> None:
        """The controller to try next while no leader is known; after the last, the first again."""
        self._target = next((node for node in known(self._controllers) if node > tried), -1)

    def _controller(self, leader: int | None) -> int | None:
        """The controller to call: the leader if it is known, else any; None while none is known."""
        for node in (leader, self._target, *known(self._controllers)[:1]):
            if node is not None and node in self._controllers and node >= 0:
                return node
        return None

    def _accepted(self, answer: m.BrokerHeartbeatResponse, beat: _Beat, now: Instant) -> None:
        next_state = BrokerState.read(answer.next_state)
        length_ms = answer.lease_end_time_ms - beat.lease_start_ms
        ends_ns = beat.sent_ns + length_ms * MS
        self._out.note(
            LeaseGranted(
                broker_id=self._settings.node_id,
                broker_epoch=answer.broker_epoch,
                next_state=next_state.label,
                lease_start_ms=beat.lease_start_ms,
                lease_end_ms=answer.lease_end_time_ms,
                ends_at_ns=ends_ns,
                controller_epoch=answer.controller_epoch,
            )
        )
        # The grant was sent before the controller knew of the other process.
        if self.lost:
            return
        self.epoch = answer.broker_epoch
        # Transition INITIAL to FENCED. The answer grants no lease to a broker in INITIAL, whatever
        # it says: it must catch up with the metadata first (REG-04).
        if self.state is BrokerState.INITIAL:
            self._move("registered")
            self._next_ns = now.monotonic_ns + RETRY_NS
            return
        if next_state is BrokerState.SHUTDOWN:
            self._grant_shutdown("shutdown_granted")
            return
        if next_state is BrokerState.UNKNOWN:
            return  # no known state, and no lease (QC-27)
        # The controller counts this broker as fenced. It serves no client from here on, though its
        # lease may not be over.
        if next_state is not BrokerState.ACTIVE:
            self._move("refused")
            self._next_ns = now.monotonic_ns + RETRY_NS
            return
        if beat.state is not self.state:
            self.hurry(now)  # fenced since it sent this: it needs another epoch (QC-20)
            return
        self.lease_ends_ns = max(self.lease_ends_ns, ends_ns)
        # Transition FENCED to ACTIVE, if the lease is not over already: the answer may have taken
        # longer than the lease.
        if now.monotonic_ns < self.lease_ends_ns:
            self._move("unfenced")
        # It goes on asking for SHUTDOWN, and soon: the controller moves its leaderships meanwhile.
        if self._stop is not None:
            self._next_ns = now.monotonic_ns + RETRY_NS

    def _refused(
        self, error: Error, answer: m.BrokerHeartbeatResponse, target: int, now: Instant
    ) -> None:
        self._out.note(
            HeartbeatRefused(
                broker_id=self._settings.node_id,
                broker_epoch=self.epoch,
                error=error.name,
                controller=target,
            )
        )
        # A standby refuses for itself only. The lease goes on, and the active controller is asked
        # soon.
        if error is Error.NOT_CONTROLLER:
            self._next_target(target)
            if answer.active_controller_id in self._controllers:
                self._target = answer.active_controller_id
            self._next_ns = now.monotonic_ns + RETRY_NS
            return
        self._move("refused")
        # A process that was registered has lost the id for good (QC-19). In INITIAL it has nothing
        # to lose, and asks again.
        if error is Error.DUPLICATE_BROKER_REGISTRATION:
            if self.state is not BrokerState.INITIAL:
                self.lost = True
        elif error in (Error.STALE_BROKER_EPOCH, Error.BROKER_ID_NOT_REGISTERED) and not self.lost:
            self.epoch = -1  # registers again, as the same incarnation
            self._next_ns = now.monotonic_ns + RETRY_NS
