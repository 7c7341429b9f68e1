"""Defects of replicas: their logs, high watermarks, ISRs and disks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fencepost import Defect
from fencepost_clusters.reference.core.replication.roles import Follower
from fencepost_clusters.reference.policies import Policies, PolicyDefect
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.batch_header import BatchHeader


def _from_log_end(checkpoint: int, log_end: int) -> int:
    return log_end


def _restarts_from_log_end(p: Policies) -> Policies:
    return replace(p, replication=replace(p.replication, restored_watermark=_from_log_end))


# The replica's own high watermark may lag behind the leader's, so what it cuts off may be
# committed. If all others fail before it has fetched that again, it is lost.
def _keeps_committed_only(high_watermark: int, log_end: int) -> int:
    return high_watermark


def _truncates_to_checkpoint(p: Policies) -> Policies:
    return replace(p, replication=replace(p.replication, kept_when_following=_keeps_committed_only))


# The follower keeps messages of a former leader and appends the new leader's behind them.
def _never_diverges(last_epoch: int, log_end: int, leaders_epoch: int, leaders_end: int) -> bool:
    return False


def _never_truncates(p: Policies) -> Policies:
    return replace(p, replication=replace(p.replication, diverges=_never_diverges))


def _one_further(header: BatchHeader, data: bytes, log_end: int) -> tuple[BatchHeader, bytes]:
    moved = record_batch.stamp(data, log_end + 1, header.leader_epoch)
    return record_batch.parse(moved, verify=False), moved


def _appends_past_end(p: Policies) -> Policies:
    return replace(p, replication=replace(p.replication, batch_from_leader=_one_further))


def _learns_nothing(current: int, leaders: int, log_end: int) -> int:
    return current


def _followers_never_learn(p: Policies) -> Policies:
    return replace(p, replication=replace(p.replication, learned_watermark=_learns_nothing))


# The leader never asks for a smaller ISR. A follower that is fenced leaves it by the controller's
# record nevertheless.
def _never_lags(silent_ns: int, most_ns: int) -> bool:
    return False


def _dead_follower_blocks(p: Policies) -> Policies:
    return replace(p, replication=replace(p.replication, is_laggard=_never_lags))


# What the follower has stored is not asked.
def _joins_while_it_fetches(follower: Follower, least_end: int, now_ns: int, most_ns: int) -> bool:
    return now_ns - follower.fetched_ns < most_ns


def _laggard_joins_isr(p: Policies) -> Policies:
    return replace(p, replication=replace(p.replication, may_join=_joins_while_it_fetches))


def _counts_proposed(
    stored: Collection[int], adding: Collection[int], proposed: Collection[int] | None
) -> tuple[int, ...]:
    kept = stored if proposed is None else [one for one in stored if one in proposed]
    return tuple(sorted({*kept, *adding}))


def _commits_on_unstored_shrink(p: Policies) -> Policies:
    return replace(p, replication=replace(p.replication, counted_replicas=_counts_proposed))


def _syncs_once_flushed(flushed: int, log_end: int) -> bool:
    return flushed >= log_end


def _flushed_before_sync(p: Policies) -> Policies:
    return replace(p, replication=replace(p.replication, sync_is_due=_syncs_once_flushed))


_NO_POWER_LOST = "a process that is killed loses nothing that it wrote: that takes a loss of power"


def _removes_none(strays: Collection[str]) -> list[str]:
    return []


def _deleted_topic_comes_back(p: Policies) -> Policies:
    return replace(p, replication=replace(p.replication, removed_unopened=_removes_none))


DEFECTS = (
    PolicyDefect(
        Defect(
            "restarts-from-log-end",
            ("RP-08",),
            "a restarted replica takes its log end offset as high watermark",
        ),
        _restarts_from_log_end,
    ),
    PolicyDefect(
        Defect(
            "truncates-to-checkpoint",
            ("RP-15",),
            "a follower truncates to its checkpointed high watermark, and is then elected",
        ),
        _truncates_to_checkpoint,
    ),
    PolicyDefect(
        Defect("never-truncates", ("RP-15", "RP-05"), "a follower does not truncate at all"),
        _never_truncates,
    ),
    PolicyDefect(
        Defect(
            "appends-past-end",
            ("RP-05",),
            "a follower appends at an offset that is not its log end",
        ),
        _appends_past_end,
    ),
    PolicyDefect(
        Defect("followers-never-learn", ("RP-27",), "followers never learn the high watermark"),
        _followers_never_learn,
    ),
    PolicyDefect(
        Defect("dead-follower-blocks", ("RP-09",), "a dead follower blocks commits for good"),
        _dead_follower_blocks,
    ),
    PolicyDefect(
        Defect("laggard-joins-isr", ("RP-10",), "a follower that lags is put back into the ISR"),
        _laggard_joins_isr,
    ),
    PolicyDefect(
        Defect(
            "commits-on-unstored-shrink",
            ("RP-32",),
            "a cut-off leader commits on an ISR shrink that was never stored",
        ),
        _commits_on_unstored_shrink,
    ),
    PolicyDefect(
        Defect(
            "flushed-before-sync",
            ("RP-26",),
            "the flushed offset is advanced before the sync",
            {"process": _NO_POWER_LOST, "docker": _NO_POWER_LOST},
        ),
        _flushed_before_sync,
    ),
    PolicyDefect(
        Defect(
            "deleted-topic-comes-back",
            ("RP-25",),
            "a broker that was down brings a deleted topic back",
        ),
        _deleted_topic_comes_back,
    ),
)
