"""The metadata's decisions that a defect can replace, as pure functions; see `quorum.policies`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.quorum.metadata import features
from fencepost_clusters.reference.wire import records as r


def snapshot_slice(copied: Sequence[r.Record], current: Image) -> Sequence[r.Record]:
    """The contents of a slice of a snapshot: the records as they were copied when the snapshot
    started, without later changes (QC-11)."""
    return copied


def record_level(image: Image) -> int:
    """The format level of new records: the finalized one (QC-33)."""
    return features.level(image)


def metadata_lag(last_stable: int, applied: int) -> int:
    """How many committed records a node has not replayed, for its metric MetadataLag (QC-25)."""
    return max(0, last_stable - applied)


@dataclass(frozen=True, slots=True)
class MetadataPolicies:
    """See the module."""

    snapshot_slice: Callable[[Sequence[r.Record], Image], Sequence[r.Record]] = snapshot_slice
    record_level: Callable[[Image], int] = record_level
    metadata_lag: Callable[[int, int], int] = metadata_lag
