"""What nodes tell a client of their cluster as a whole."""

from __future__ import annotations

from msgspec import Struct

from fencepost import describe, numbers


class ClusterSeen(Struct, frozen=True, gc=False, tag="cluster.seen", kw_only=True):
    """The nodes of a cluster were asked, from `began_ns` on: `controller` is active in
    `controller_epoch`, the brokers `live` are in the cluster, those in `silent` gave no answer
    themselves, and some partitions, of whatever topic, have no leader (`leaderless`) or lack
    replicas in their ISR (`short`); the first of them by name."""

    began_ns: int
    controller: int
    controller_epoch: int
    live: tuple[int, ...]
    silent: tuple[int, ...] = ()
    leaderless: tuple[str, ...] = ()
    short: tuple[str, ...] = ()

    def sentence(self) -> str:
        said = f"controller {self.controller} is active in epoch {self.controller_epoch}, brokers "
        said += f"{numbers(self.live)} are live"
        if self.silent:
            said += f"; no answer from brokers {numbers(self.silent)}"
        if self.leaderless:
            said += f"; no leader: {describe(self.leaderless)}"
        if self.short:
            said += f"; not fully in sync: {describe(self.short)}"
        return said
