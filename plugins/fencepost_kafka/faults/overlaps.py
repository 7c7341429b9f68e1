"""Which fault of links may begin while others act upon links: one that certainly has a receipt.

A receipt measures each link that is dialled, by a probe from the slot that dials it. A slow link
still answers, so a cut over it shows as any other cut. A cut of what the target sends leaves the
question through, so a cut of what the source sends shows over it in the bytes that vanish. The
other way round nothing shows: no question arrives that could be answered. And nothing tells a slow
link under a cut, or under another slow link.

See docs/decisions/21-second-faults.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fencepost import Planned

SEVERING = frozenset({"cut", "partition", "isolate", "cut_from_controllers"})
"""The faults that let no data pass."""
OF_LINKS = SEVERING | {"slow_link"}
"""The faults of links that act upon everything that passes."""
Direction = tuple[str, str]
"""The slot that sends, and the one that it sends to."""


def shows(planned: Planned, dialled: Direction, upon: Mapping[Direction, Collection[str]]) -> bool:
    """Whether a fault shows in a link which is in use, and which the first of two slots dials to
    the second one. `upon` are the faults that act upon each direction already."""
    up, down = dialled, dialled[::-1]
    if planned.fault not in SEVERING:
        return not ({up, down}.isdisjoint(planned.directions) or upon.get(up) or upon.get(down))
    if not SEVERING.isdisjoint(upon.get(up, ())):
        return False
    adds_down = down in planned.directions and SEVERING.isdisjoint(upon.get(down, ()))
    return up in planned.directions or adds_down
