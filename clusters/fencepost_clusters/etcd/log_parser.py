"""Makes events of the log of an etcd member: zap's JSON lines, by one table for raft's messages and
one for others.

A row names a message as a pattern and makes events of it. Samples of each row, as etcd printed
them, are in the tests. The parser remembers only facts that later lines leave out: the member's id,
and whether it leads.

etcd stamps its lines with the wall clock, to the microsecond; the runtime converts these stamps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from re import Match, Pattern
from typing import Literal, final

import msgspec
from msgspec import Struct

from fencepost import NodeStarted, ParsedEvent
from fencepost_clusters.etcd.events import (
    ApplySlow,
    BecameFollower,
    BecameLeader,
    CampaignStarted,
    LeaderElected,
    LeaderLost,
    MemberReady,
    MemberStarted,
    MemberStopping,
    PeerChanged,
    StoppedLeading,
    VoteCast,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNITS = {"h": 3_600_000.0, "m": 60_000.0, "s": 1_000.0, "ms": 1.0, "µs": 0.001, "ns": 0.000_001}


MEMBER = "member"
"""The role of every node of an etcd cluster."""


class Line(Struct, frozen=True, rename="kebab"):
    """The fields of a line that are read."""

    ts: str
    msg: str
    level: str = ""
    logger: str = ""
    error: str = ""
    signal: str = ""
    took: str = ""
    peer_id: str = ""
    cluster_id: str = ""
    local_member_id: str = ""


@final
@dataclass(slots=True)
class Memory:
    """Facts about a member that later lines of its log do not repeat."""

    node_id: int
    """The number of its slot."""
    member: str = ""
    led: int = 0
    """The term that it leads (0: it leads none)."""
    transferring: bool = False
    stopping: bool = False


Bodies = Iterator[Struct]
MakeEvents = Callable[[Memory, Match[str], Line], Bodies]


@dataclass(frozen=True, slots=True)
class LogPattern:
    """One kind of line: its message, and the events that it makes."""

    message: Pattern[str]
    make_events: MakeEvents


@final
class MemberLogParser:
    """The parser of the log of one process, of the member with that number."""

    def __init__(self, node_id: int) -> None:
        self._memory = Memory(node_id)
        self._decode = msgspec.json.Decoder(Line).decode

    def parse(self, line: str) -> Sequence[ParsedEvent]:
        """The events of one line; most lines have none, nor has a line that zap did not print."""
        try:
            read = self._decode(line)
        except msgspec.DecodeError:
            return ()
        if read.local_member_id:
            self._memory.member = read.local_member_id
        for row in _RAFT if read.logger == "raft" else _SERVER:
            found = row.message.match(read.msg)
            if found is not None:
                at_ns = wall_clock_ns(read.ts)
                bodies = row.make_events(self._memory, found, read)
                return [ParsedEvent(at_ns, body, wall=True) for body in bodies]
        if read.level in {"fatal", "panic"} and not self._memory.stopping:
            self._memory.stopping = True
            reason = f"{read.msg}: {read.error}" if read.error else read.msg
            body = MemberStopping(member=self._memory.member, reason=reason)
            return [ParsedEvent(wall_clock_ns(read.ts), body, wall=True)]
        return ()


def wall_clock_ns(stamp: str) -> int:
    """Nanoseconds since 1970 of a stamp as zap prints it, exactly."""
    return (datetime.fromisoformat(stamp) - _EPOCH) // _MICROSECOND * 1_000


def duration_ms(printed: str) -> float:
    """Milliseconds of a duration as Go prints it: `1m2.5s`, `104.7ms`."""
    parts = re.findall(r"([\d.]+)(h|ms|m|s|µs|ns)", printed)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


# -------------------------------------------------------------------------------------- raft's


def _follower(memory: Memory, found: Match[str], line: Line) -> Bodies:
    member = found["member"]
    yield from _stopped(memory, member, "transferred" if memory.transferring else "higher-term")
    memory.transferring = False
    yield BecameFollower(member=member, term=int(found["term"]))


def _stopped(
    memory: Memory, member: str, reason: Literal["quorum-lost", "higher-term", "transferred"]
) -> Bodies:
    if memory.led:
        yield StoppedLeading(member=member, term=memory.led, reason=reason)
    memory.led = 0


def _quorum_lost(memory: Memory, found: Match[str], line: Line) -> Bodies:
    return _stopped(memory, found["member"], "quorum-lost")


def _campaign(memory: Memory, found: Match[str], line: Line) -> Bodies:
    pre = found["kind"] == "pre-candidate"
    yield CampaignStarted(member=found["member"], term=int(found["term"]), pre=pre)


def _leader(memory: Memory, found: Match[str], line: Line) -> Bodies:
    memory.led = int(found["term"])
    yield BecameLeader(member=found["member"], term=memory.led)


def _elected(memory: Memory, found: Match[str], line: Line) -> Bodies:
    yield LeaderElected(member=found["member"], leader=found["leader"], term=int(found["term"]))


def _lost(memory: Memory, found: Match[str], line: Line) -> Bodies:
    yield LeaderLost(member=found["member"], leader=found["leader"], term=int(found["term"]))


def _vote(memory: Memory, found: Match[str], line: Line) -> Bodies:
    yield VoteCast(
        member=found["member"],
        candidate=found["candidate"],
        term=int(found["term"]),
        pre=found["kind"] == "MsgPreVote",
        granted=found["answer"] == "cast",
    )


_MEMBER = r"(?P<member>[0-9a-f]+)"
_LEADER = r"(?P<leader>[0-9a-f]+)"
_TERM = r"at term (?P<term>\d+)"
_RAFT = (
    LogPattern(re.compile(rf"{_MEMBER} became follower {_TERM}$"), _follower),
    LogPattern(re.compile(rf"{_MEMBER} became (?P<kind>(pre-)?candidate) {_TERM}$"), _campaign),
    LogPattern(re.compile(rf"{_MEMBER} became leader {_TERM}$"), _leader),
    LogPattern(re.compile(rf"{_MEMBER} stepped down to follower since quorum"), _quorum_lost),
    LogPattern(re.compile(rf"raft\.node: {_MEMBER} elected leader {_LEADER} {_TERM}$"), _elected),
    LogPattern(re.compile(rf"raft\.node: {_MEMBER} changed leader from \S+ to {_LEADER} {_TERM}$"),
        _elected),
    LogPattern(re.compile(rf"raft\.node: {_MEMBER} lost leader {_LEADER} {_TERM}$"), _lost),
    LogPattern(re.compile(rf"{_MEMBER} \[.*?\] (?P<answer>cast|rejected|ignored) "
                   r"(?P<kind>MsgVote|MsgPreVote) (for|from) (?P<candidate>[0-9a-f]+) "
                   rf"\[.*?\] {_TERM}"), _vote),
)  # fmt: skip


# ------------------------------------------------------------------------------------ the server's


def _started(memory: Memory, found: Match[str], line: Line) -> Bodies:
    yield NodeStarted(role=MEMBER, node_id=memory.node_id)
    yield MemberStarted(
        member=memory.member, cluster=line.cluster_id, restarted=bool(found["again"])
    )


def _ready(memory: Memory, found: Match[str], line: Line) -> Bodies:
    yield MemberReady(member=memory.member)


def _stopping(memory: Memory, found: Match[str], line: Line) -> Bodies:
    memory.stopping = True
    yield MemberStopping(member=memory.member, reason=line.signal)


def _peer(memory: Memory, found: Match[str], line: Line) -> Bodies:
    active = found["state"] == "active"
    yield PeerChanged(member=memory.member, peer=line.peer_id, active=active, error=line.error)


def _slow(memory: Memory, found: Match[str], line: Line) -> Bodies:
    yield ApplySlow(member=memory.member, took_ms=round(duration_ms(line.took)))


def _transferring(memory: Memory, found: Match[str], line: Line) -> Bodies:
    memory.transferring = True
    yield from ()


_SERVER = (
    LogPattern(re.compile(r"(?P<again>re)?starting local member$"), _started),
    LogPattern(re.compile(r"ready to serve client requests$"), _ready),
    LogPattern(re.compile(r"received signal; shutting down$"), _stopping),
    LogPattern(re.compile(r"peer became (?P<state>active|inactive)"), _peer),
    LogPattern(re.compile(r"apply request took too long$"), _slow),
    LogPattern(re.compile(r"leadership transfer starting$"), _transferring),
)
