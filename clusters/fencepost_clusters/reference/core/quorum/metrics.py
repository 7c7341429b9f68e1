"""A node's metrics under KIP-631's names, recorded as an event.

Metrics set no timer: they are computed when a node has handled an input, and rates are those of the
last complete interval of at least a second.
"""

from __future__ import annotations

from collections import deque
from typing import final

from msgspec.structs import replace

from fencepost import MS, SECOND
from fencepost_clusters.reference.core.node.effects import Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import NodeRole
from fencepost_clusters.reference.core.quorum.metadata.committed import Committed
from fencepost_clusters.reference.core.quorum.metadata.policies import MetadataPolicies
from fencepost_clusters.reference.core.quorum.raft.raft import Raft
from fencepost_kafka import MetricsReported


@final
class Metrics:
    """The metrics of one node; `latest` are those of its metrics page."""

    def __init__(
        self, role: NodeRole, node_id: int, policies: MetadataPolicies, out: Outbox, now: Instant
    ) -> None:
        self.latest = MetricsReported(role=role, node_id=node_id)
        self._controls = role == "controller"
        self._policies = policies
        self._out = out
        self._since_ns = now.monotonic_ns
        self._requests = 0
        # (log end after an append, when it was appended): until the high watermark reaches that
        # end.
        self._appended: deque[tuple[int, int]] = deque()
        # How long each append of the interval waited for its commit.
        self._waits_ns: list[int] = []
        # Whether the last event said that this node lags. A change of that is told at once,
        # everything else once a second.
        self._behind = False

    def requested(self) -> None:
        """A request for this controller is processed."""
        self._requests += 1

    def appended(self, log_end: int, now: Instant) -> None:
        """The active controller has appended records up to `log_end`, which are not committed
        yet."""
        self._appended.append((log_end, now.monotonic_ns))

    def term_ended(self) -> None:
        """This controller stops leading: it will not commit the records that it appended."""
        self._appended.clear()

    def observe(self, raft: Raft, committed: Committed, snapshot: int, now: Instant) -> None:
        """Called after each step: records the metrics if they have changed and enough time has
        passed.

        `snapshot` is the offset of this node's last one, -1 for none.
        """
        while self._appended and self._appended[0][0] <= raft.high_watermark:
            self._waits_ns.append(now.monotonic_ns - self._appended.popleft()[1])
        behind = committed.applied < raft.last_stable
        whole = now.monotonic_ns - self._since_ns >= SECOND
        if behind is self._behind and not whole:
            return
        self._behind = behind
        current = self._with_offsets(raft, committed, snapshot)
        if whole:
            if self._controls:
                current = self._with_rates(current, committed.replayed, now)
            self._since_ns = now.monotonic_ns
        if replace(current, over_ms=self.latest.over_ms) != self.latest:
            self._out.note(current)
            self.latest = current

    def _with_offsets(self, raft: Raft, committed: Committed, snapshot: int) -> MetricsReported:
        lag = self._policies.metadata_lag(raft.last_stable, committed.applied)
        since = raft.last_stable - snapshot if self._controls and snapshot >= 0 else 0
        return replace(
            self.latest,
            metadata_lag=lag,
            snapshot_lag=since,
            last_stable=raft.last_stable,
            replayed=committed.applied,
        )

    def _with_rates(self, current: MetricsReported, commits: int, now: Instant) -> MetricsReported:
        over_ns = now.monotonic_ns - self._since_ns
        waits_ns, self._waits_ns = self._waits_ns, []
        return replace(
            current,
            commit_latency_ms=round(sum(waits_ns) / len(waits_ns) / MS, 3) if waits_ns else 0.0,
            commit_rate=round((commits - current.commits) * SECOND / over_ns, 3),
            requests_rate=round((self._requests - current.requests) * SECOND / over_ns, 3),
            commits=commits,
            requests=self._requests,
            over_ms=over_ns / MS,
        )
