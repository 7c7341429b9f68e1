"""Kinds of events about a ZooKeeper server, from its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from fencepost import Authority, Change

LEADERSHIP = "zookeeper leadership"
"""The scope of the authority over the whole tree: one server of an ensemble has it, in an epoch."""

Mode = Literal["standalone", "leader", "follower"]


class ServerServes(Struct, frozen=True, kw_only=True, tag="zookeeper.serves"):
    """A server serves clients from now on; a standalone server has no epoch (-1)."""

    server: int
    mode: Mode
    epoch: int = -1

    def sentence(self) -> str:
        how = "alone" if self.mode == "standalone" else f"as {self.mode} in epoch {self.epoch}"
        return f"serves clients {how}"

    def authority(self) -> Sequence[Authority]:
        if self.mode != "leader":
            return ()
        return (Authority(LEADERSHIP, Change.GAINED, self.epoch, state="leader", wide=True),)


class ServerLooks(Struct, frozen=True, kw_only=True, tag="zookeeper.looks"):
    """A server looks for a leader and serves no client. `led` is the epoch in which it led (-1: it
    did not lead)."""

    server: int
    led: int = -1

    def sentence(self) -> str:
        lost = f", and no longer leads in epoch {self.led}" if self.led >= 0 else ""
        return f"looks for a leader and serves no client{lost}"

    def authority(self) -> Sequence[Authority]:
        if self.led < 0:
            return ()
        return (Authority(LEADERSHIP, Change.LOST, self.led, state="looking", wide=True),)


class SessionExpired(Struct, frozen=True, kw_only=True, tag="zookeeper.session_expired"):
    """A server ends a session that was silent for its timeout."""

    session: str
    timeout_ms: int

    def sentence(self) -> str:
        return f"ends session {self.session}, silent for its timeout of {self.timeout_ms} ms"


KINDS: tuple[type[Struct], ...] = (ServerServes, ServerLooks, SessionExpired)


def session_name(session: int) -> str:
    """A session as ZooKeeper writes it."""
    return f"0x{session:x}"
