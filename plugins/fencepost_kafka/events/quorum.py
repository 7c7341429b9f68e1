"""Kinds of events about the quorum of controllers: votes, terms, voters, their metrics."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from msgspec import Struct

from fencepost import Authority, Change, Origin, numbers
from fencepost_kafka.events.values import NodeRole, ResignReason, VoteReason
from fencepost_kafka.events.words import CONTROLLER_SCOPE, scopes, term_scope


class ElectionStarted(Struct, frozen=True, gc=False, tag="quorum.election_started", kw_only=True):
    """A voter became candidate of `epoch`; it has stored the vote for itself."""

    epoch: int
    log_end: int
    last_epoch: int

    def sentence(self) -> str:
        return f"stands for election in epoch {self.epoch}, log end {self.log_end}"

    def concerns(self) -> Sequence[str]:
        return (term_scope(self.epoch),)


class VoteAnswered(Struct, frozen=True, gc=False, kw_only=True, tag="quorum.vote_answered"):
    """A voter answered a Vote request; a granted vote is on its disk before this event.

    `reason` is granted, already_voted, log_behind, old_epoch or has_leader. `log_end`, `last_epoch`
    are the voter's own; `candidate_*` the candidate's.
    """

    epoch: int
    candidate: int
    granted: bool
    reason: VoteReason
    log_end: int
    last_epoch: int
    candidate_log_end: int
    candidate_last_epoch: int

    def sentence(self) -> str:
        if self.granted:
            return f"voted for controller {self.candidate} in epoch {self.epoch}"
        return f"refused controller {self.candidate} its vote in epoch {self.epoch} ({self.reason})"

    def authority(self) -> Sequence[Authority]:
        change = Change.NOTED if self.granted else Change.REFUSED
        return (Authority(term_scope(self.epoch), change, self.epoch),)

    def concerns(self) -> Sequence[str]:
        return (term_scope(self.epoch),)


class ControllerElected(
    Struct, frozen=True, gc=False, tag="quorum.controller_elected", kw_only=True
):
    """This voter won `epoch` and is the active controller; `log_end`, `last_epoch` as it starts."""

    epoch: int
    log_end: int
    last_epoch: int

    def sentence(self) -> str:
        return f"became active controller of epoch {self.epoch}, log end {self.log_end}"

    def authority(self) -> Sequence[Authority]:
        return (
            Authority(CONTROLLER_SCOPE, Change.GAINED, self.epoch, state="controller", wide=True),
        )

    def concerns(self) -> Sequence[str]:
        return (term_scope(self.epoch),)

    def source_of(self, process: str) -> Sequence[Hashable]:
        return (("epoch", self.epoch),)

    def came_from(self, process: str) -> Sequence[Origin]:
        return ()


class ControllerResigned(
    Struct, frozen=True, gc=False, tag="quorum.controller_resigned", kw_only=True
):
    """This voter stopped being the active controller of `epoch`.

    `reason` is no_majority, higher_epoch, shutdown, removed (from the voters), or failed (something
    that it was asked for).
    """

    epoch: int
    reason: ResignReason

    def sentence(self) -> str:
        return f"resigned as active controller of epoch {self.epoch} ({self.reason})"

    def authority(self) -> Sequence[Authority]:
        return (Authority(CONTROLLER_SCOPE, Change.LOST, self.epoch, wide=True),)

    def concerns(self) -> Sequence[str]:
        return (term_scope(self.epoch),)


class ControllerFollowed(
    Struct, frozen=True, gc=False, tag="quorum.controller_followed", kw_only=True
):
    """This node learned that `leader` is the active controller of `epoch`."""

    epoch: int
    leader: int

    def sentence(self) -> str:
        return f"follows controller {self.leader} of epoch {self.epoch}"

    def source_of(self, process: str) -> Sequence[Hashable]:
        return ()

    def came_from(self, process: str) -> Sequence[Origin]:
        return (Origin(("epoch", self.epoch)),)


class QuorumLearned(Struct, frozen=True, gc=False, tag="quorum.learned", kw_only=True):
    """This node takes these for the quorum's voters; `endpoints` are theirs, in the same order.

    A broker learns them from answers; `bootstrap` are the addresses that it was configured with. A
    controller has no `bootstrap`: it reads the voters in its log, or, as long as the log names
    none, in its configuration.
    """

    voters: tuple[int, ...]
    endpoints: tuple[str, ...]
    bootstrap: tuple[str, ...]

    def sentence(self) -> str:
        return f"takes controllers {numbers(self.voters)} for the quorum"


class MetricsReported(Struct, frozen=True, gc=False, tag="metrics.reported", kw_only=True):
    """This node's metrics as it exposes them: KIP-631's, in its order, and the figures behind them.

    Written when something has changed, at most once a second, and at once when the node finds that
    it is behind, or no longer is. `last_stable` is the metadata's last stable offset as far as this
    node knows, `replayed` the first offset it has not replayed, both exclusive ends. The lags are
    in records. The rates are per second over the last complete `over_ms`, in which the commits took
    `commit_latency_ms` on average (0: this node made none). `commits` and `requests` are this
    process's, from its start to the end of that time. A broker has only a MetadataLag.
    """

    role: NodeRole
    node_id: int
    metadata_lag: int = 0
    commit_latency_ms: float = 0.0
    commit_rate: float = 0.0
    snapshot_lag: int = 0
    requests_rate: float = 0.0
    last_stable: int = 0
    replayed: int = 0
    commits: int = 0
    requests: int = 0
    over_ms: float = 0.0

    def sentence(self) -> str:
        return (
            f"reports as {self.role} {self.node_id}: MetadataLag {self.metadata_lag}, with "
            f"offset {self.replayed} "
            f"replayed of {self.last_stable}"
        )


class SnapshotKnown(Struct, frozen=True, gc=False, tag="controller.snapshot_known", kw_only=True):
    """The active controller learned that `controller`'s last snapshot is at `offset` (-1: none)."""

    controller: int
    offset: int
    controller_epoch: int

    def sentence(self) -> str:
        return f"knows that controller {self.controller}'s last snapshot is at offset {self.offset}"


class SnapshotAsked(Struct, frozen=True, gc=False, kw_only=True, tag="controller.snapshot_asked"):
    """The active controller asks `controller` (perhaps itself) to take a snapshot.

    `last_offset` is that of the one it has, `committed` the end of what is committed. `waited`: it
    was due before, while another's was under way. A snapshot that is not reported within
    `patience_ms` may be given up.
    """

    controller: int
    last_offset: int
    committed: int
    controller_epoch: int
    waited: bool
    patience_ms: int

    def sentence(self) -> str:
        return (
            f"asks controller {self.controller} to take a snapshot: its last one is at offset "
            f"{self.last_offset}, and offset {self.committed} is committed"
        )


class ChangeAnswered(Struct, frozen=True, gc=False, kw_only=True, tag="controller.change_answered"):
    """The active controller is about to answer a change (CreateTopics, AlterIsr and their like).

    `offset` is the last record the change wrote (-1: it wrote none), `high_watermark` the committed
    offset (exclusive) at that moment; `client` the process that asked.
    """

    api: str
    client: str
    error: str
    """Kafka's name of the error (NONE: none); an open set, since versions of Kafka add to it."""
    offset: int
    high_watermark: int
    controller_epoch: int

    def sentence(self) -> str:
        return (
            f"answered {self.api} of {self.client} with {self.error}: record at {self.offset}, "
            "high watermark "
            f"{self.high_watermark}, controller epoch {self.controller_epoch}"
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)
