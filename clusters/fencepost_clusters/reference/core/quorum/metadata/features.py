"""Finalized features (KIP-584): the enabled level of each, and the levels that a broker supports.

A feature is a setting of the cluster in the metadata itself (a ConfigRecord), so that every node
learns of a level exactly where the records written at that level begin. There is one:
`metadata.format`, by which records and snapshots are written.

    level 1   every record in version 0: data that KIP-631's fields lack is in tagged fields
    level 2   BrokerRecord in version 1: the fenced state and the incarnation are fields of it

See docs/decisions/44-features.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r

FEATURE_RESOURCE: Final = 64
"""Our resource type of a feature in ConfigRecord; Kafka's end at 32."""
METADATA_FORMAT = "metadata.format"
SUPPORTED: Mapping[str, tuple[int, int]] = {METADATA_FORMAT: (1, r.MAX_LEVEL)}
"""The levels that this software supports: feature -> lowest and highest level."""


def mine(settings: Settings) -> tuple[m.Feature, ...]:
    """The features in a broker's heartbeats: the levels that this software supports, or fewer if a
    setting makes it act as older software."""
    least, most = SUPPORTED[METADATA_FORMAT]
    return (
        m.Feature(
            name=METADATA_FORMAT,
            min_level=least,
            max_level=min(most, settings.ms("metadata.format.max.level")),
        ),
    )


def enabled(image: Image) -> dict[str, int]:
    """The finalized level of each feature."""
    values = image.other_settings.get((FEATURE_RESOURCE, ""), {})
    return {name: int(value) for name, value in values.items()}


def level(image: Image) -> int:
    """The level at which records are written; 1 until one is finalized."""
    return enabled(image).get(METADATA_FORMAT, 1)


def finalize(image: Image, wanted: int) -> tuple[r.Record, ...]:
    """The record that raises metadata.format to a level, if it is higher; it is never lowered."""
    known = enabled(image).get(METADATA_FORMAT, 0)
    if wanted <= known:
        return ()
    return (
        r.ConfigRecord(
            resource_type=FEATURE_RESOURCE,
            resource_name="",
            name=METADATA_FORMAT,
            value=str(wanted),
        ),
    )


def unsupported(image: Image, supported: Iterable[m.Feature]) -> str | None:
    """The first enabled feature whose level a broker does not support, or None.

    A broker that does not mention a feature supports its first level.
    """
    known = {one.name: (one.min_level, one.max_level) for one in supported}
    for name, wanted in sorted(enabled(image).items()):
        least, most = known.get(name, (1, 1))
        if not least <= wanted <= most:
            return name
    return None
