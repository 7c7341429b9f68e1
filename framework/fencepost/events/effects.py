"""The acts of faults, by which rules know what a fault did."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Effect(StrEnum):
    """One act of a fault."""

    SEVERS = "severs"
    """No data passes in a direction."""
    SLOWS = "slows"
    """Data passes late, or at a low rate."""
    HOLDS = "holds"
    """Single messages are held, delayed or dropped in a direction."""
    STOPS = "stops"
    """The process of a slot stands still."""
    ENDS = "ends"
    """The process of a slot was ended, or asked to end."""
    EMPTIES_DISK = "empties-disk"
    """The disk of a slot is empty, or that of another one."""
    DAMAGES_DISK = "damages-disk"
    """Files on the disk of a slot have lost their ends."""
    LOSES_UNFLUSHED = "loses-unflushed"
    """The disk of a slot may lack what was written to it and not flushed."""
    DOUBLES = "doubles"
    """A second process has the id of a slot's node."""


HARMS_FLUSHED = (Effect.EMPTIES_DISK, Effect.DAMAGES_DISK)
"""What may take from a disk even what was flushed to it."""
HARMS_DISK = (*HARMS_FLUSHED, Effect.LOSES_UNFLUSHED)
"""What may take from a disk anything that was written to it."""

FORMERLY: Mapping[Effect, tuple[str, ...]] = {
    Effect.SEVERS: (
        *("cut", "cut_from_*", "isolate", "isolate_role", "partition", "halves", "bridge"),
        "majorities_ring",
    ),
    Effect.SLOWS: ("slow_link",),
    Effect.HOLDS: ("hold",),
    Effect.STOPS: ("pause",),
    Effect.EMPTIES_DISK: ("wipe_disk",),
    Effect.DAMAGES_DISK: ("damage_disk",),
    Effect.LOSES_UNFLUSHED: ("lose_power",),
    Effect.DOUBLES: ("duplicate_id",),
}
"""The faults, as patterns of names, that have an effect in histories of before effects were
written."""
