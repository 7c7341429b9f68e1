"""The bounds of a cluster's availability, as its configuration implies them."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct


class BoundsStated(Struct, frozen=True, gc=False, tag="cluster.bounds", kw_only=True):
    """How long, by its configuration, a cluster may be without what it promises, in milliseconds.

    `fenced_ms`: until a dead broker is out of the cluster and leads nothing, where the servers that
    decide about brokers are not disturbed. `writable_ms`: until a client's write with acks=all is
    acknowledged again. `recovered_ms`: until everything is as before, after the last fault healed.
    `least_in_sync` is the least size of an ISR for such a write.
    """

    by_harness: ClassVar[bool] = True

    fenced_ms: int
    writable_ms: int
    recovered_ms: int
    least_in_sync: int

    def sentence(self) -> str:
        return (
            f"by its configuration a dead broker is fenced within {self.fenced_ms} ms, a partition "
            f"writable again within {self.writable_ms} ms, and the cluster recovers within "
            f"{self.recovered_ms} ms"
        )
