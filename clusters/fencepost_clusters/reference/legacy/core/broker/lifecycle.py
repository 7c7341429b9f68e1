"""A broker's life: registration, heartbeats to the controller, self-fencing, shutdown (KIP-343).

    STARTING --accepted--> ACTIVE --silent, refused--> FENCED --accepted--> ACTIVE
    ACTIVE --asked to stop--> STOPPING --leads nothing, or time limit--> ENDED

Below the inter-broker protocol that brings heartbeats, a registered broker is active.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from fencepost import MS
from fencepost_clusters.reference.core.node.deadlines import earliest
from fencepost_clusters.reference.core.node.effects import Address, Call, Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.legacy.core.policies import LegacyBrokerPolicies, epoch_sent
from fencepost_clusters.reference.over_zookeeper.core.own_state import OwnState
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.reference.wire.legacy import BrokerState
from fencepost_kafka import (
    BrokerStateChanged,
    BrokerStopping,
    MetadataHeartbeatReceived,
    MetadataHeartbeatSent,
    StateReason,
)

RETRY_NS = 50 * MS


class _Beat(Struct, frozen=True):
    """A heartbeat without an answer so far."""

    call: int
    controller: int
    incarnation: int
    sent_ns: int


class Lifecycle:
    """See the module. `epoch` is the broker epoch, NO_EPOCH without a registration."""

    def __init__(
        self,
        settings: Settings,
        controller: Callable[[], tuple[int, Address] | None],
        policies: LegacyBrokerPolicies,
        out: Outbox,
    ) -> None:
        """`controller` returns the controller's broker id and address, if both are known."""
        self.state = OwnState.STARTING
        self.epoch = w.NO_EPOCH
        self.lost = False
        """Whether another process has taken the id: this process never acts as a broker again."""
        self.ended = False
        # The czxid of the znode that this process replaced; only a defect sends it.
        self._former: int | None = None
        self._settings = settings
        self._protocol = settings.ms("inter.broker.protocol")
        self._controller = controller
        self._policies = policies
        self._out = out
        # When the last accepted heartbeat was sent: the fencing timeout runs from the sending
        # (HB-06). It is longer than the controller's timeout, so that a broker which is cut off is
        # declared inactive before it fences itself (HB-11).
        self._contact_ns = 0
        self._next_ns = 0
        self._beat: _Beat | None = None
        self._stop_ns: int | None = None
        self._shutdown: int | None = None
        """The call of the ControlledShutdown that has no answer so far."""
        # When the next ControlledShutdown is due.
        self._shutdown_ns = 0
        self._left: int | None = None
        """How many leaderships the controller has left to this broker; None: not known."""

    # ------------------------------------------------------------------------------- questions

    def serving(self, now: Instant) -> bool:
        """Whether new requests of clients are processed (HB-04, HB-06, HB-07). A Tick that is due
        must have been given before, since it may fence this broker."""
        return self._policies.serves(self.state)

    def finishing(self, now: Instant) -> bool:
        """Whether requests in progress are completed: a fenced broker does, too (HB-07)."""
        return True

    def _fence_ns(self) -> int | None:
        """When this broker fences itself without another accepted heartbeat; None: never."""
        if not self._policies.fences_itself(self._protocol):
            return None
        timeout_ns = self._settings.ns("broker.heartbeat.timeout.ms")
        return self._policies.fences_at_ns(self._contact_ns, timeout_ns)

    def _silent(self, now: Instant) -> bool:
        fence_ns = self._fence_ns()
        return fence_ns is not None and now.monotonic_ns >= fence_ns

    @property
    def is_registered(self) -> bool:
        """Whether this process has a registration, as far as it knows."""
        return self.epoch != w.NO_EPOCH

    @property
    def stopping(self) -> bool:
        """Whether this broker was asked to stop."""
        return self._stop_ns is not None

    def deadline_ns(self) -> int | None:
        """When the next Tick is due."""
        may_fence = self.state in (OwnState.ACTIVE, OwnState.STOPPING)
        due_ns = earliest(
            (self._next_ns if self._may_beat() else None, self._fence_ns() if may_fence else None)
        )
        if self._stop_ns is None or self.ended:
            return due_ns
        return earliest(
            (
                due_ns,
                self._stop_ns + self._settings.ns("controlled.shutdown.timeout.ms"),
                self._shutdown_ns if self._shutdown is None else None,
            )
        )

    # ------------------------------------------------------------------------------ registration

    def registered(self, epoch: int, former: int | None, now: Instant) -> None:
        """The znode is created: `epoch` is its czxid, `former` that of the znode before it."""
        self.epoch, self._former = epoch, former
        self._next_ns = now.monotonic_ns
        if not self._policies.sends_heartbeats(self._protocol):
            self._become(OwnState.STOPPING if self.stopping else OwnState.ACTIVE, "registered")

    def unregistered(self) -> None:
        """The session has ended, and its ephemeral znode is deleted (HB-28)."""
        self.epoch = w.NO_EPOCH
        if self._policies.fences_itself(self._protocol):
            self._become(OwnState.STARTING, "session_ended")

    def taken_over(self) -> None:
        """Another process has registered under this broker's id."""
        self.lost = True
        self._become(OwnState.FENCED, "taken_over")

    # ------------------------------------------------------------------------------- time passes

    def tick(self, now: Instant, led: int) -> None:
        """Fences this broker, sends a heartbeat or a ControlledShutdown, or ends, as is due.

        `led` is the number of partitions that this broker leads.
        """
        # First, before anything is sent or served in this step.
        if self.state in (OwnState.ACTIVE, OwnState.STOPPING) and self._silent(now):
            self._become(OwnState.FENCED, "controller_silent")
        if self._stop_ns is not None and not self.ended:
            self._go_on_stopping(now, led)
        if self._may_beat() and now.monotonic_ns >= self._next_ns:
            self._send_beat(now)

    def _become(self, state: OwnState, reason: StateReason) -> None:
        old, self.state = self.state, state
        if old is state:
            return
        self._out.note(
            BrokerStateChanged(
                broker_id=self._settings.node_id,
                old=old.label,
                new=state.label,
                broker_epoch=self.epoch,
                reason=reason,
                global_state=state.global_state,
            )
        )

    # ------------------------------------------------------------------------------- heartbeats

    def _may_beat(self) -> bool:
        return (
            self._beat is None
            and self.is_registered
            and not self.lost
            and not self.ended
            and self._policies.sends_heartbeats(self._protocol)
        )

    def _send_beat(self, now: Instant) -> None:
        found = self._controller()
        if found is None:
            self._next_ns = now.monotonic_ns + RETRY_NS
            return
        controller, address = found
        incarnation = self._policies.incarnation_id(self.epoch, self._former)
        target = BrokerState.STOPPING if self.stopping else BrokerState.ACTIVE
        call = self._out.next_call()
        self._out.note(
            MetadataHeartbeatSent(
                broker_id=self._settings.node_id,
                incarnation_id=incarnation,
                controller=controller,
                correlation=call,
                target_state=target,
            )
        )
        request = w.MetadataHeartbeatRequest(
            broker_id=self._settings.node_id, incarnation_id=incarnation, target_state=target
        )
        limit_ms = max(
            self._settings.ms("broker.heartbeat.interval.ms"),
            self._settings.ms("controller.heartbeat.timeout.ms") // 3,
        )
        self._out.add(Call(call, address, "heartbeat", request, limit_ms))
        self._beat = _Beat(call, controller, self.epoch, now.monotonic_ns)

    def answered(self, call_id: int, answer: m.Response, now: Instant) -> None:
        """Applies the answer to a heartbeat or a ControlledShutdown, if it is one."""
        if self._shutdown == call_id:
            assert isinstance(answer, w.ControlledShutdownResponse), answer
            granted = answer.error_code == Error.NONE
            self._left = len(answer.remaining_partitions) if granted else None
            self._shutdown = None
            self._shutdown_ns = now.monotonic_ns + RETRY_NS
            return
        beat = self._beat
        if beat is None or beat.call != call_id:
            return
        assert isinstance(answer, w.MetadataHeartbeatResponse), answer
        self._beat = None
        self._next_ns = beat.sent_ns + self._settings.ns("broker.heartbeat.interval.ms")
        error = Error(answer.error_code)
        self._out.note(
            MetadataHeartbeatReceived(
                broker_id=self._settings.node_id,
                incarnation_id=beat.incarnation,
                controller=beat.controller,
                error=error.name,
                state=answer.current_state,
                sent_ns=beat.sent_ns,
                timeout_ms=self._settings.ms("broker.heartbeat.timeout.ms"),
            )
        )
        # An answer about a former registration says nothing of this one.
        if self.lost or beat.incarnation != self.epoch:
            return
        if error is Error.INVALID_INCARNATION_ID:
            self._become(self._policies.state_when_refused(self.state), "refused")
        if error is not Error.NONE:
            self._next_ns = now.monotonic_ns + RETRY_NS
        else:
            self._accepted(BrokerState(answer.current_state), beat, now)

    def _accepted(self, settled: BrokerState, beat: _Beat, now: Instant) -> None:
        state = self._policies.state_when_accepted(self.state, settled, self.stopping)
        if state in (OwnState.ACTIVE, OwnState.STOPPING):
            self._contact_ns = max(self._contact_ns, beat.sent_ns)
            if self._silent(now):
                return  # the timeout was over before the answer arrived
            self._become(state, "stopping" if state is OwnState.STOPPING else "unfenced")
            return
        self._next_ns = now.monotonic_ns + RETRY_NS
        self._become(state, "refused")

    def failed(self, call_id: int, now: Instant) -> None:
        """Repeats a heartbeat or a ControlledShutdown that got no answer, if the call was one."""
        if self._shutdown == call_id:
            self._shutdown = None
            self._shutdown_ns = now.monotonic_ns + RETRY_NS
        elif self._beat is not None and self._beat.call == call_id:
            self._beat = None
            self._next_ns = now.monotonic_ns + RETRY_NS

    # --------------------------------------------------------------------------------- shutdown

    def stop(self, now: Instant) -> None:
        """Begins a controlled shutdown: leaderships move first, then the broker ends (HB-05)."""
        if self._stop_ns is not None:
            return
        self._stop_ns = self._shutdown_ns = now.monotonic_ns
        self._next_ns = now.monotonic_ns
        limit_ms = self._settings.ms("controlled.shutdown.timeout.ms")
        self._out.note(
            BrokerStopping(
                broker_id=self._settings.node_id,
                state=self.state.label,
                global_state="Stopping",
                limit_ms=limit_ms,
            )
        )
        if not self._policies.sends_heartbeats(self._protocol) and self.state is OwnState.ACTIVE:
            self._become(OwnState.STOPPING, "stopping")
        if self.state is OwnState.STARTING or self.lost:
            self._end("shutdown_requested")

    def _go_on_stopping(self, now: Instant, led: int) -> None:
        assert self._stop_ns is not None
        limit_ns = self._settings.ns("controlled.shutdown.timeout.ms")
        timed_out = now.monotonic_ns >= self._stop_ns + limit_ns
        # The controller knows this broker as stopping only after a heartbeat that says so. Before
        # that it could still elect it.
        moved = self.state is OwnState.STOPPING or timed_out
        # The controller may have stored leaderships that this broker has not received yet.
        remaining = max(led, 1 if self._left is None else self._left)
        if moved and self._policies.may_end(remaining, self._stop_ns, now.monotonic_ns, limit_ns):
            self._end("shutdown_timeout" if remaining and timed_out else "shutdown_granted")
            return
        found = self._controller()
        due = self._shutdown is None and now.monotonic_ns >= self._shutdown_ns
        if self.state is not OwnState.STOPPING or found is None or not due:
            if due:
                self._shutdown_ns = now.monotonic_ns + RETRY_NS
            return
        request = w.ControlledShutdownRequest(
            broker_id=self._settings.node_id, broker_epoch=epoch_sent(self._protocol, self.epoch)
        )
        timeout_ms = self._settings.ms("request.timeout.ms")
        self._shutdown = self._out.call(found[1], "shutdown", request, timeout_ms)

    def _end(self, reason: StateReason) -> None:
        self.ended = True
        self._become(OwnState.ENDED, reason)
