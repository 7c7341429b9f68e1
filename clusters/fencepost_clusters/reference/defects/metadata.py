"""Defects of the metadata: snapshots, format, and answers from uncommitted state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fencepost import Defect
from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.quorum.controller.policies import Applied
from fencepost_clusters.reference.core.quorum.metadata.snapshots import records_of
from fencepost_clusters.reference.policies import Policies, PolicyDefect
from fencepost_clusters.reference.wire import records as r


# The entity is left out with its old content, too. A snapshot that held the old content would be
# right: the records of the change follow it in the log.
def _unchanged_only(copied: Sequence[r.Record], current: Image) -> Sequence[r.Record]:
    unchanged = set(records_of(current))
    return [record for record in copied if record in unchanged]


def _snapshot_misses_changes(p: Policies) -> Policies:
    return replace(p, metadata=replace(p.metadata, snapshot_slice=_unchanged_only))


def _waits_for_no_snapshot(other_silent_ns: int, lease_ns: int) -> bool:
    return False


def _two_snapshots_at_once(p: Policies) -> Policies:
    term = replace(p.controller.term, snapshot_must_wait=_waits_for_no_snapshot)
    return replace(p, controller=replace(p.controller, term=term))


def _newest_level(image: Image) -> int:
    return r.MAX_LEVEL


def _writes_newer_format(p: Policies) -> Policies:
    return replace(p, metadata=replace(p.metadata, record_level=_newest_level))


def _no_lag(last_stable: int, applied: int) -> int:
    return 0


def _lag_stays_zero(p: Policies) -> Policies:
    return replace(p, metadata=replace(p.metadata, metadata_lag=_no_lag))


# Offset 0 is committed at all times, so an answer that waits for it waits for nothing.
def _answers_at_once(log_end: int) -> int:
    return 0


def _answers_uncommitted(p: Policies) -> Policies:
    term = replace(p.controller.term, answer_offset=_answers_at_once)
    return replace(p, controller=replace(p.controller, term=term))


def _keeps_uncommitted(committed: Applied, ahead: Applied) -> Applied:
    return ahead


def _keeps_uncommitted_state(p: Policies) -> Policies:
    term = replace(p.controller.term, kept_on_deposition=_keeps_uncommitted)
    return replace(p, controller=replace(p.controller, term=term))


DEFECTS = (
    PolicyDefect(
        Defect(
            "snapshot-misses-changes",
            ("QC-11",),
            "a snapshot leaves out an entity changed while it was written",
        ),
        _snapshot_misses_changes,
    ),
    PolicyDefect(
        Defect("two-snapshots-at-once", ("QC-12",), "two controllers snapshot at once"),
        _two_snapshots_at_once,
    ),
    PolicyDefect(
        Defect(
            "writes-newer-format",
            ("QC-33",),
            "records are written in a format above the enabled level",
        ),
        _writes_newer_format,
    ),
    PolicyDefect(
        Defect("lag-stays-zero", ("QC-25",), "MetadataLag stays 0 on a node that is behind"),
        _lag_stays_zero,
    ),
    PolicyDefect(
        Defect("answers-uncommitted", ("QC-08",), "the controller answers from uncommitted state"),
        _answers_uncommitted,
    ),
    PolicyDefect(
        Defect(
            "keeps-uncommitted-state",
            ("QC-09",),
            "a deposed controller keeps state that was never committed",
        ),
        _keeps_uncommitted_state,
    ),
)
