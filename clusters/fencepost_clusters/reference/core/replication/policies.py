"""Decisions of replication that a defect can replace, as pure functions, for every plane."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from fencepost_clusters.reference.core.log.entry import Entry
from fencepost_clusters.reference.core.replication.roles import Follower, Part
from fencepost_clusters.reference.wire.batch_header import BatchHeader
from fencepost_clusters.reference.wire.errors import Error

# ------------------------------------------------------------------------- starting and following


def restored_watermark(checkpoint: int, log_end: int) -> int:
    """The high watermark of a replica that starts: the stored one, up to the log end (RP-08)."""
    return min(checkpoint, log_end)


def kept_when_following(high_watermark: int, log_end: int) -> int:
    """How much of its log a replica keeps when it starts to follow: all of it.

    The leader's answers later name the offset where the logs diverge, by leader epoch (RP-15).
    """
    return log_end


def diverges(last_epoch: int, log_end: int, leaders_epoch: int, leaders_end: int) -> bool:
    """Whether a follower's log is not a prefix of the leader's (RP-15).

    `leaders_epoch` is the leader's newest epoch up to `last_epoch`, `leaders_end` where it ends.
    """
    return leaders_epoch != last_epoch or leaders_end < log_end


def batch_from_leader(header: BatchHeader, data: bytes, log_end: int) -> tuple[BatchHeader, bytes]:
    """The batch that a follower appends: exactly the leader's (RP-05)."""
    return header, data


def learned_watermark(current: int, leaders: int, log_end: int) -> int:
    """A follower's high watermark: the leader's, as far as the follower's log goes (RP-27)."""
    return max(current, min(leaders, log_end))


# ------------------------------------------------------------------------------------- the leader


def is_laggard(silent_ns: int, most_ns: int) -> bool:
    """Whether a member of the ISR has not been caught up for too long (RP-09)."""
    return silent_ns >= most_ns


def may_join(follower: Follower, least_end: int, now_ns: int, most_ns: int) -> bool:
    """Whether a follower may join the ISR: it has reached `least_end`, the high watermark and the
    start of this epoch, and was caught up not long ago (RP-10).

    Without the second condition a dead follower of a quiet log would join and leave repeatedly.
    """
    return follower.end >= least_end and now_ns - follower.caught_up_ns < most_ns


def counted_replicas(
    stored: Collection[int], adding: Collection[int], proposed: Collection[int] | None
) -> tuple[int, ...]:
    """The replicas over which the high watermark is the lowest log end.

    They are the stored ISR and the replicas that may have been added. A shrink that was only
    `proposed` does not count (RP-32).
    """
    return tuple(sorted({*stored, *adding}))


def sync_is_due(flushed: int, log_end: int) -> bool:
    """Whether a checkpoint syncs a log before it stores that all of it is flushed (RP-26)."""
    return flushed < log_end


# --------------------------------------------------------------------------------- other brokers


def is_past_epoch(claimed: int, known: int) -> bool:
    """Whether a fetching broker belongs to an earlier registration, and is refused (QC-19)."""
    return claimed < known


def is_current_epoch(claimed: int, known: int | None) -> bool:
    """Whether a fetching broker is the registered process, so that its fetch counts (QC-19)."""
    return claimed == known


def removed_unopened(strays: Collection[str]) -> list[str]:
    """Which logs a broker removes of those on its disk that belong to none of its partitions, and
    that it never opened: all (RP-25)."""
    return sorted(strays)


# --------------------------------------------------------------------------------------- clients


def accepts_writes(part: Part) -> bool:
    """Whether a replica appends clients' batches: only the leader does (RP-18)."""
    return part is Part.LEADER


def remembered_batches(window: tuple[Entry, ...], epoch_start: int) -> tuple[Entry, ...]:
    """The batches of a producer against which duplicates are checked: all in the log, also those of
    earlier leaders (RP-12)."""
    return window


def waits_for_followers(acks: int) -> bool:
    """Whether a produce request is answered only once it is committed (RP-04)."""
    return acks == -1


def readable_end(high_watermark: int, log_end: int) -> int:
    """The offset below which clients read: the committed part of the log (RP-07)."""
    return high_watermark


@dataclass(frozen=True, slots=True)
class ReplicationPolicies:
    """See the module."""

    restored_watermark: Callable[[int, int], int] = restored_watermark
    kept_when_following: Callable[[int, int], int] = kept_when_following
    diverges: Callable[[int, int, int, int], bool] = diverges
    batch_from_leader: Callable[[BatchHeader, bytes, int], tuple[BatchHeader, bytes]] = (
        batch_from_leader
    )
    learned_watermark: Callable[[int, int, int], int] = learned_watermark
    is_laggard: Callable[[int, int], bool] = is_laggard
    may_join: Callable[[Follower, int, int, int], bool] = may_join
    counted_replicas: Callable[
        [Collection[int], Collection[int], Collection[int] | None], tuple[int, ...]
    ] = counted_replicas
    sync_is_due: Callable[[int, int], bool] = sync_is_due
    is_past_epoch: Callable[[int, int], bool] = is_past_epoch
    is_current_epoch: Callable[[int, int | None], bool] = is_current_epoch
    removed_unopened: Callable[[Collection[str]], list[str]] = removed_unopened
    accepts_writes: Callable[[Part], bool] = accepts_writes
    remembered_batches: Callable[[tuple[Entry, ...], int], tuple[Entry, ...]] = remembered_batches
    waits_for_followers: Callable[[int], bool] = waits_for_followers
    error_on_stepping_down: Error = Error.NOT_LEADER_OR_FOLLOWER
    """The answer to a write that was not committed when its leader stepped down (RP-31)."""
    readable_end: Callable[[int, int], int] = readable_end
