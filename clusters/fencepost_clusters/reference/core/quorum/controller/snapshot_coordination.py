"""Coordinates which controller takes a snapshot, and when: the active controller's part, and a
standby's (KIP-631).

A standby reports the offset of its last snapshot in a ControllerHeartbeat; the answer may ask it to
take another. The active controller's knowledge of snapshots is soft state: a new active controller
starts without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fencepost_clusters.reference.core.node.effects import Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.quorum.controller.policies import TermPolicies
from fencepost_clusters.reference.core.quorum.raft.electorate import Electorate
from fencepost_clusters.reference.wire import messages as m
from fencepost_kafka import SnapshotAsked, SnapshotKnown


@dataclass(slots=True)
class _Known:
    """The last report of a controller: the offset of its snapshot, and when it came."""

    offset: int
    heard_ns: int


@final
class Coordination:
    """The active controller's part: one snapshot at a time, as far as it knows (QC-12)."""

    def __init__(self, settings: Settings, epoch: int, policies: TermPolicies, out: Outbox) -> None:
        self._settings = settings
        self._epoch = epoch
        self._policies = policies
        self._out = out
        self._known: dict[int, _Known] = {}
        self._asked: tuple[int, int] | None = None
        """The controller whose snapshot is under way, and the offset of its former snapshot."""
        self._made_to_wait: set[int] = set()

    def report(self, controller: int, offset: int, now: Instant) -> None:
        """Takes the offset of a controller's last snapshot; this controller reports, too."""
        known = self._known.get(controller)
        if known is not None and known.offset == offset:
            known.heard_ns = now.monotonic_ns
        else:
            self._known[controller] = _Known(offset, now.monotonic_ns)
            self._out.note(
                SnapshotKnown(controller=controller, offset=offset, controller_epoch=self._epoch)
            )
        # The snapshot that was asked for is there: another controller may take its own.
        if self._asked is not None and self._asked[0] == controller and offset > self._asked[1]:
            self._asked = None

    def should_start(self, controller: int, committed: int, now: Instant) -> bool:
        """Whether a controller that just reported is to take a snapshot now."""
        last = self._known[controller].offset
        interval = self._settings.ms("metadata.snapshot.interval.records")
        if committed - max(0, last) < interval:
            return False
        if self._asked is not None:
            other = self._asked[0]
            if other == controller:
                return True  # the answer that asked for it may have been lost
            # A controller that died during its snapshot must not keep all others from theirs. After
            # a lease period of silence it is waited for no more.
            silent_ns = now.monotonic_ns - self._known[other].heard_ns
            if self._policies.snapshot_must_wait(silent_ns, self._settings.lease_ms * 1_000_000):
                self._made_to_wait.add(controller)
                return False
        self._asked = (controller, last)
        waited = controller in self._made_to_wait
        self._made_to_wait.discard(controller)
        patience_ms = self._settings.lease_ms
        self._out.note(
            SnapshotAsked(
                controller=controller,
                last_offset=last,
                committed=committed,
                controller_epoch=self._epoch,
                waited=waited,
                patience_ms=patience_ms,
            )
        )
        return True


@final
class Reporting:
    """A standby's part: a ControllerHeartbeat at intervals, and at once after a new snapshot."""

    def __init__(
        self, settings: Settings, electorate: Electorate, out: Outbox, now: Instant
    ) -> None:
        self._settings = settings
        self._electorate = electorate
        self._out = out
        self._next_ns = now.monotonic_ns
        self._call: int | None = None
        self._reported = -1
        """The offset of the snapshot in the last report."""

    def deadline_ns(self, leader: int | None) -> int | None:
        """When the next report is due, if the active controller is known."""
        known = self._electorate.address(leader) is not None
        return self._next_ns if known and self._call is None else None

    def hurry(self, now: Instant) -> None:
        """Makes the next report due at once, since there is a new snapshot."""
        self._next_ns = min(self._next_ns, now.monotonic_ns)

    def tick(self, leader: int | None, offset: int, now: Instant) -> None:
        """Sends the heartbeat that is due."""
        address = self._electorate.address(leader)
        if address is None or self._call is not None or now.monotonic_ns < self._next_ns:
            return
        self._next_ns = now.monotonic_ns + self._settings.heartbeat_ms * 1_000_000
        self._reported = offset
        request = m.ControllerHeartbeatRequest(
            controller_id=self._settings.node_id, last_snapshot_offset=offset
        )
        self._call = self._out.call(address, "heartbeat", request, self._settings.lease_ms // 3)

    def answered(self, call_id: int, answer: m.Response, offset: int) -> bool | None:
        """Whether the answer asks for a snapshot; None if the call was no report.

        An answer does not count as a request if another snapshot, at `offset`, was taken since the
        heartbeat was sent.
        """
        if call_id != self._call:
            return None
        self._call = None
        assert isinstance(answer, m.ControllerHeartbeatResponse), answer
        return answer.error_code == 0 and answer.start_snapshot and offset == self._reported

    def failed(self, call_id: int) -> None:
        """A heartbeat got no answer, if the call was one."""
        if call_id == self._call:
            self._call = None
