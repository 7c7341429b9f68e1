"""A broker's life: it serves clients while it is registered, and gives its leaderships up before it
stops.

    STARTING --registered--> ACTIVE --its session ends--> FENCED --registered again--> ACTIVE
    ACTIVE --asked to stop--> STOPPING --leads nothing, or time limit--> ENDED
"""

from __future__ import annotations

from fencepost_clusters.reference.core.node.effects import Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.over_zookeeper.core.own_state import OwnState
from fencepost_kafka import BrokerStateChanged, BrokerStopping, StateReason

NO_EPOCH = -1
"""The broker epoch without a registration."""


class Lifecycle:
    """See the module. `epoch` is the broker epoch, NO_EPOCH without a registration."""

    def __init__(self, settings: Settings, out: Outbox) -> None:
        self.state = OwnState.STARTING
        self.epoch = NO_EPOCH
        self._settings = settings
        self._out = out
        self._stop_ns: int | None = None

    @property
    def ended(self) -> bool:
        return self.state is OwnState.ENDED

    @property
    def stopping(self) -> bool:
        """Whether this broker was asked to stop."""
        return self._stop_ns is not None

    @property
    def registered(self) -> bool:
        """Whether this process has a registration, as far as it knows."""
        return self.epoch != NO_EPOCH

    def serving(self, now: Instant) -> bool:
        """Whether new requests of clients are processed: while it is registered."""
        # A suspended session does not end that: the servers may still hold it, and if they do not,
        # the broker hears of its end as soon as it is connected.
        return self.state in (OwnState.ACTIVE, OwnState.STOPPING)

    def finishing(self, now: Instant) -> bool:
        """Whether requests in progress are completed."""
        return True

    def deadline_ns(self) -> int | None:
        """When a broker that stops ends at the latest."""
        if self._stop_ns is None or self.ended:
            return None
        return self._stop_ns + self._settings.ns("controlled.shutdown.timeout.ms")

    def registers(self, epoch: int) -> None:
        """The znode is created; its czxid is the broker epoch."""
        self.epoch = epoch
        self._become(OwnState.ACTIVE, "registered")

    def unregistered(self) -> None:
        """The session has ended, and with it the registration."""
        self.epoch = NO_EPOCH
        if self.state is not OwnState.STARTING:
            self._become(OwnState.FENCED, "session_ended")

    def stop(self, now: Instant) -> None:
        """Begins a controlled shutdown."""
        if self._stop_ns is not None:
            return
        self._stop_ns = now.monotonic_ns
        self._out.note(
            BrokerStopping(
                broker_id=self._settings.node_id,
                state=self.state.label,
                global_state="Stopping",
                limit_ms=self._settings.ms("controlled.shutdown.timeout.ms"),
            )
        )
        if self.state is OwnState.ACTIVE:
            self._become(OwnState.STOPPING, "stopping")
        else:
            self._become(OwnState.ENDED, "shutdown_requested")

    def go_on(self, led: int, now: Instant) -> None:
        """Ends a broker that stops, once it leads nothing or its time is up."""
        deadline_ns = self.deadline_ns()
        if deadline_ns is None:
            return
        if led == 0:
            self._become(OwnState.ENDED, "shutdown_granted")
        elif now.monotonic_ns >= deadline_ns:
            self._become(OwnState.ENDED, "shutdown_timeout")

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
            )
        )
