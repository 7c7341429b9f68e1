"""KIP-631's metrics: a node's report about itself is compared with the events of all nodes."""

from __future__ import annotations

from collections import defaultdict
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
    PromiseObserved,
    Rule,
    RunEnd,
    Undecided,
    Violated,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    ControllerElected,
    HeartbeatAnswered,
    MetadataCommitted,
    MetricsReported,
    SnapshotLoaded,
    SnapshotStored,
)
from fencepost_suites.common.surfaces import observed

PER_MS = 0.001
"""The rounding error of a rate in a report, per millisecond of the time it covers."""


_Proof = tuple[Evidence, tuple[Cause, ...]]
"""The kind of evidence for what is committed, and the events that prove it."""


@dataclass(slots=True)
class _Node:
    """The events of one process; `nodes` is how many nodes share it and its stream of events."""

    nodes: int = 0
    replayed: int = 0
    last: Cause | None = None
    commits: int = 0
    snapshot: int = -1
    answered: int = 0
    newest_ns: int = 0
    """The timestamp of its newest event."""
    since_ns: int | None = None
    """The timestamp of the event before its first election. A step reads its clock before its
    events are stamped, so the term may have begun as early as that."""
    report: MetricsReported | None = None


@dataclass(slots=True)
class _Metrics:
    """Every process, and the highest offset that any node knew to be committed."""

    nodes: defaultdict[str, _Node] = field(default_factory=lambda: defaultdict(_Node))
    stable: int = 0
    stable_ref: Cause | None = None


@final
class MetricsMatchHistory(Rule[_Metrics]):
    """QC-25. A node learns only with a delay how far others have committed. So a lag is measured
    from the last stable offset that the node knows, and some node must have committed that offset.
    Exercised by a report of a node that is behind.

    If a broker and a controller share a process, their events cannot be separated: their reports
    are compared with their own figures only. A test's observation of a node's metrics page counts
    as well.
    """

    clause = "QC-25"
    state = _Metrics

    @on(
        NodeStarted,
        MetadataCommitted,
        SnapshotLoaded,
        SnapshotStored,
        HeartbeatAnswered,
        ControllerElected,
        MetricsReported,
    )
    def step(self, state: _Metrics, event: Event, body: Struct) -> Findings:
        node = state.nodes[event.process]
        before_ns, node.newest_ns = node.newest_ns, event.at_ns
        match body:
            case NodeStarted():
                node.nodes += 1
            case MetadataCommitted():
                node.replayed, node.last = body.offset + 1, event.ref
                node.commits += 1
            case SnapshotLoaded():
                node.replayed = max(node.replayed, body.offset)
                node.snapshot = body.offset
            case SnapshotStored():
                node.snapshot = body.offset
            case HeartbeatAnswered():
                node.answered += 1
            case ControllerElected():
                if node.since_ns is None:
                    node.since_ns = before_ns
            case MetricsReported():
                if body.last_stable > state.stable:
                    state.stable, state.stable_ref = body.last_stable, event.ref
                return self._reported(state, node, event, body)
        return NOTHING

    @on(PromiseObserved)
    def _observed(self, state: _Metrics, event: Event, body: PromiseObserved) -> Findings:
        return observed(event, self.clause)

    def _reported(
        self, state: _Metrics, node: _Node, event: Event, body: MetricsReported
    ) -> Findings:
        alone = node.nodes == 1
        replayed = node.replayed if alone else body.replayed
        lag = max(0, body.last_stable - replayed)
        evidence, because = proof = self._others(state, event, body.last_stable)
        wrong = self._wrong(node, event, body, proof) if alone else None
        if body.metadata_lag != lag:
            wrong = violated(
                event.ref,
                evidence,
                "{process} reports a MetadataLag of {lag}, with the metadata replayed up to "
                "{replayed} and known to be committed up to {committed}",
                because,
                process=process_scope(event.process),
                lag=body.metadata_lag,
                replayed=replayed,
                committed=body.last_stable,
            )
        node.report = body
        if wrong is not None:
            return (wrong,)
        return (Exercised(event.ref, evidence),) if lag else NOTHING

    @staticmethod
    def _others(state: _Metrics, event: Event, last_stable: int) -> _Proof:
        """The evidence that this offset was committed: another process, if one has replayed it."""
        for process, other in state.nodes.items():
            if process != event.process and other.last and other.replayed >= last_stable:
                return Evidence.PEER, (other.last,)
        return Evidence.SELF, ()

    @staticmethod
    def _wrong(node: _Node, event: Event, body: MetricsReported, proof: _Proof) -> Violated | None:
        """Which of the other metrics contradicts what the process did."""
        before = node.report or MetricsReported(role=body.role, node_id=body.node_id)
        if body.role == "broker":
            return None
        snapshot_lag = body.last_stable - node.snapshot if node.snapshot >= 0 else 0
        if body.snapshot_lag != snapshot_lag:
            evidence, because = proof
            return violated(
                event.ref,
                evidence,
                "{process} reports a MetadataSnapshotLag of {lag}, with its last snapshot at "
                "{snapshot} (-1: none) and {committed} committed",
                because,
                process=process_scope(event.process),
                lag=body.snapshot_lag,
                snapshot=node.snapshot,
                committed=body.last_stable,
            )
        rates = (body.commit_rate, body.requests_rate, body.commits, body.requests)
        if rates == (before.commit_rate, before.requests_rate, before.commits, before.requests):
            return None  # the event has offsets only, in the middle of a second
        return _wrong_rate(node, before, event, body, proof) or _wrong_total(
            node, event, body, proof
        )

    def end(self, state: _Metrics, end: RunEnd) -> Findings:
        """An event that mentions a commit may precede the event of the commit, so this is judged at
        the end."""
        committed = max((node.replayed for node in state.nodes.values()), default=0)
        if state.stable_ref is None or state.stable <= committed:
            return NOTHING
        broken = violated(
            state.stable_ref,
            Evidence.PEER,
            "a node reports lags from a last stable offset of {offset}, but no node ever "
            "committed more than {committed}",
            offset=state.stable,
            committed=committed,
            process=process_scope(state.stable_ref.process),
        )
        return (broken if end.complete else Undecided.of(broken),)


def _wrong_rate(
    node: _Node, before: MetricsReported, event: Event, body: MetricsReported, proof: _Proof
) -> Violated | None:
    """A rate that contradicts what the process counted since its report before."""
    for metric, rate, count in (
        ("MetadataCommitRate", body.commit_rate, node.commits - before.commits),
        ("ControllerRequestsRate", body.requests_rate, body.requests - before.requests),
    ):
        if abs(rate * body.over_ms / 1000 - count) > body.over_ms * PER_MS / 1000:
            evidence, because = proof
            return violated(
                event.ref,
                evidence,
                "{process} reports a {metric} of {rate}, for {count} in {after_ms} ms",
                because,
                process=process_scope(event.process),
                metric=metric,
                rate=rate,
                count=count,
                after_ms=body.over_ms,
            )
    return None


def _wrong_total(
    node: _Node, event: Event, body: MetricsReported, proof: _Proof
) -> Violated | None:
    """Fewer requests than it answered, or a commit that took longer than its term."""
    evidence, because = proof
    if body.requests < node.answered:
        return violated(
            event.ref,
            evidence,
            "{process} reports {requests} requests, with {answered} heartbeats answered",
            because,
            process=process_scope(event.process),
            requests=body.requests,
            answered=node.answered,
        )
    since = node.since_ns
    # Only an active controller appends. So no wait for a commit can be longer than the time since
    # its first election.
    longer = since is None or body.commit_latency_ms > (event.at_ns - since) / 1_000_000
    if body.commit_latency_ms > 0 and longer:
        return violated(
            event.ref,
            evidence,
            "{process} reports a MetadataCommitLatencyMs of {after_ms}, longer than it has been "
            "the active controller",
            because,
            process=process_scope(event.process),
            after_ms=body.commit_latency_ms,
        )
    return None
