"""Makes events of the lines that a Kafka node logs, by a table with one row per kind of line.

A row has the end of the logger's name (classes have moved between packages), a pattern of the
message, and a function that makes the events. Samples of each line, as the versions print it, pin
the rows in the tests. A figure that a line does not have is -1 or empty. The log parser remembers
only facts that later lines leave out: the partitions that its node leads, and the ends of its
replicas' logs when they began to follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from re import Match, Pattern
from typing import final

from msgspec import Struct

from fencepost import NodeStarted, NodeStopped, ParsedEvent, Slot
from fencepost_clusters.apache_kafka.log_memory import (
    Memory,
    QuorumConfigured,
    SessionConfigured,
)
from fencepost_kafka import (
    BrokerStateChanged,
    BrokerStateName,
    BrokerStopping,
    ControllerElected,
    ControllerFollowed,
    ControllerResigned,
    ElectionStarted,
    FollowingStarted,
    HeartbeatRefused,
    IsrChangeAnswered,
    IsrChangeAsked,
    LeadershipEnded,
    LeadershipStarted,
    LeaseExpired,
    LogTruncated,
    MetadataApplied,
    RecoveryEnded,
    RecoveryStarted,
    RequestRefused,
    ResignReason,
    Role,
    StateReason,
    VoteAnswered,
    VoteReason,
)

LINE = re.compile(r"@(\d+) [A-Z]+ (\S+) (.*)")
"""A line as the layout in log4j2.properties prints it."""
CONTROLLED_SHUTDOWN_MS = 300_000
"""How long a broker waits for its shutdown to be granted; Kafka has no setting for it."""

Bodies = Iterator[Struct]
MakeEvents = Callable[["Memory", Match[str]], Bodies]


@dataclass(frozen=True, slots=True)
class LogPattern:
    """One kind of line: the end of its logger's name, its message, and the function that makes its
    events."""

    logger: str
    message: Pattern[str]
    make_events: MakeEvents


@final
class KafkaLogParser:
    """The log parser of one process of the node in a slot; see the module."""

    def __init__(
        self,
        slot: Slot,
        session_ms: int,
        *,
        fetch_timeout_ms: int = -1,
        table: Sequence[LogPattern] | None = None,
    ) -> None:
        """`table` are the kinds of line, those of KRaft mode unless given."""
        registers = slot.role is Role.BROKER
        self._memory = Memory(slot.node_id, session_ms, fetch_timeout_ms, registers)
        self._rows = _by_logger(tuple(TABLE if table is None else table))

    def parse(self, line: str) -> Sequence[ParsedEvent]:
        """The events of one line. Most lines have none; a line that no logger printed has none."""
        printed = LINE.match(line)
        if printed is None:
            return ()
        at_ns, logger, message = int(printed[1]), printed[2], printed[3]
        for one in self._rows.get(logger.rpartition(".")[2], ()):
            found = one.message.search(message)
            if found is not None:
                self._memory.at_ns = at_ns
                return [ParsedEvent(at_ns, body) for body in one.make_events(self._memory, found)]
        return ()


# ------------------------------------------------------------------------------- a broker's life


def _broker_started(now: Memory, said: Match[str]) -> Bodies:
    yield NodeStarted(role="broker", node_id=int(said[2]), incarnation=said[1], log_end=-1)
    yield SessionConfigured(broker_id=int(said[2]), timeout_ms=now.session_ms)


def _registered(now: Memory, said: Match[str]) -> Bodies:
    now.broker_epoch = int(said[2])
    yield becomes(now, "FENCED", "registered")


def _unfenced(now: Memory, said: Match[str]) -> Bodies:
    yield becomes(now, "ACTIVE", "unfenced")
    # A broker has no listener before it is unfenced: from now on it serves its partitions.
    yield from now.led.values()


def stopping(now: Memory, said: Match[str]) -> Bodies:
    """The event of a broker that is asked to stop, or begins to."""
    if now.registers and not now.stopping:
        now.stopping = True
        yield BrokerStopping(
            broker_id=now.node_id, state=now.state, global_state="", limit_ms=CONTROLLED_SHUTDOWN_MS
        )


def _shuts_down(now: Memory, said: Match[str]) -> Bodies:
    yield becomes(now, "SHUTDOWN", "shutdown_granted")


def becomes(now: Memory, state: BrokerStateName, reason: StateReason) -> BrokerStateChanged:
    """The event of a broker that is in that state from now on."""
    old, now.state = now.state, state
    return BrokerStateChanged(
        broker_id=now.node_id, old=old, new=state, broker_epoch=now.broker_epoch, reason=reason
    )


def _refused(now: Memory, said: Match[str]) -> Bodies:
    yield HeartbeatRefused(
        broker_id=int(said[1]), broker_epoch=now.broker_epoch, error=said[2], controller=-1
    )


def recovery_began(now: Memory, said: Match[str]) -> Bodies:
    """The event of a node that begins to read the logs on its disk."""
    yield RecoveryStarted(node_id=now.node_id)


def _recovered(now: Memory, said: Match[str]) -> Bodies:
    yield RecoveryEnded(node_id=now.node_id, logs=int(said[1]), batches=-1)


def _stopped(now: Memory, said: Match[str]) -> Bodies:
    if not now.stopped:  # a controller logs it twice
        now.stopped = True
        yield NodeStopped(reason="shutdown")


# ------------------------------------------------------------------------------------ the quorum


def _controller_started(now: Memory, said: Match[str]) -> Bodies:
    yield NodeStarted(role="controller", node_id=now.node_id, incarnation="", log_end=-1)
    yield QuorumConfigured(node_id=now.node_id, fetch_timeout_ms=now.fetch_timeout_ms)


def _election(now: Memory, said: Match[str]) -> Bodies:
    yield ElectionStarted(epoch=int(said[1]), log_end=-1, last_epoch=-1)


def _voted(now: Memory, said: Match[str]) -> Bodies:
    granted = said["answer"] == "granted"
    reason: VoteReason = "granted" if granted else "rejected"
    yield VoteAnswered(
        epoch=int(said["epoch"]),
        candidate=int(said["candidate"]),
        granted=granted,
        reason=reason,
        log_end=-1,
        last_epoch=-1,
        candidate_log_end=int(said["end"]),
        candidate_last_epoch=int(said["last"]),
    )


def _won(now: Memory, said: Match[str]) -> Bodies:
    now.elected_at = int(said[1])
    yield from ()


def _elected(now: Memory, said: Match[str]) -> Bodies:
    now.active_epoch, now.majority_lost = int(said[1]), False
    # Before Kafka 3.4, only the line of the won election says where the log ends.
    end = now.elected_at if said[2] is None else int(said[2])
    yield ControllerElected(epoch=int(said[1]), log_end=end, last_epoch=-1)


def _majority_lost(now: Memory, said: Match[str]) -> Bodies:
    now.majority_lost = True
    yield from ()


def _resigned(now: Memory, said: Match[str]) -> Bodies:
    reason: ResignReason = "no_majority" if now.majority_lost else "higher_epoch"
    now.active_epoch, now.majority_lost = -1, False
    yield ControllerResigned(epoch=int(said[1]), reason=reason)


def _followed(now: Memory, said: Match[str]) -> Bodies:
    yield ControllerFollowed(epoch=int(said[1]), leader=int(said[2]))


def _applied(now: Memory, said: Match[str]) -> Bodies:
    now.image = MetadataApplied(offset=int(said[1]), epoch=int(said[2]))
    if now.registers or now.counts:
        yield now.image


def _counts(now: Memory, said: Match[str]) -> Bodies:
    # The listeners of a starting controller's images are set up one after the other, seconds after
    # the first image. A controller that does not count yet has not applied the image completely.
    now.counts = True
    if now.image is not None:
        yield now.image


# ----------------------------------------------------------------- what the active controller does


def _session_over(now: Memory, said: Match[str]) -> Bodies:
    yield LeaseExpired(
        broker_id=int(said[1]),
        broker_epoch=int(said[2] or -1),
        last_heard_ns=-1,
        now_ns=now.at_ns,
        lease_period_ms=now.session_ms,
        controller_epoch=now.active_epoch,
    )


def _failed(api: str) -> MakeEvents:
    """Makes the event of a request that the controller refused, from its failed operation."""

    def make_events(now: Memory, said: Match[str]) -> Bodies:
        error = re.sub(r"(?<!^)(?=[A-Z])", "_", said[1])
        yield RequestRefused(
            api=api,
            topic="",
            partition=-1,
            client="",
            requester=-1,
            error=error.upper(),
            reason=error.lower(),
            state="",
        )

    return make_events


def _rejected(error: str, reason: str) -> MakeEvents:
    """Makes the event of an AlterPartition that the controller rejected for that reason."""

    def make_events(now: Memory, said: Match[str]) -> Bodies:
        yield RequestRefused(
            api="AlterPartition",
            topic=said["topic"],
            partition=int(said["partition"]),
            client="",
            requester=int(said["requester"]),
            error=error,
            reason=reason,
            state="",
        )

    return make_events


# ----------------------------------------------------------------------------------- the replicas


def _leads(now: Memory, said: Match[str]) -> Bodies:
    place = said["topic"], int(said["partition"])
    began = LeadershipStarted(
        topic=place[0],
        partition=place[1],
        leader_epoch=int(said["epoch"]),
        isr=_ids(said["isr"]),
        log_start=-1,
        log_end=int(said["end"]),
        high_watermark=int(said["mark"]),
    )
    now.led[place] = began
    now.followed.pop(place, None)
    if now.state == "ACTIVE":
        yield began


def _follows(now: Memory, said: Match[str]) -> Bodies:
    place = said["topic"], int(said["partition"])
    led = now.led.pop(place, None)
    if led is not None and now.state == "ACTIVE":
        yield LeadershipEnded(
            topic=place[0], partition=place[1], leader_epoch=led.leader_epoch, reason="metadata"
        )
    leader = -1 if said["leader"] == "None" else int(said["leader"])
    began = FollowingStarted(
        topic=place[0],
        partition=place[1],
        leader=leader,
        leader_epoch=int(said["epoch"]),
        log_end=int(said["end"]),
        high_watermark=int(said["mark"]),
    )
    now.followed[place] = began
    yield began


def _shrinks(now: Memory, said: Match[str]) -> Bodies:
    place = said["topic"], int(said["partition"])
    new = _ids(said["new"])
    yield IsrChangeAsked(
        topic=place[0],
        partition=place[1],
        leader_epoch=now.epoch_led(place),
        broker_epoch=now.broker_epoch,
        old_isr=_ids(said["old"]),
        new_isr=new,
        ends=(-1,) * len(new),
        high_watermark=int(said["mark"]),
        epoch_start=-1,
        lag_ns=0,
    )


def _isr_stored(now: Memory, said: Match[str]) -> Bodies:
    yield _isr_answered(now, said, "NONE", _ids(said["isr"]))


def _isr_refused(now: Memory, said: Match[str]) -> Bodies:
    yield _isr_answered(now, said, said["error"], ())


def _isr_answered(
    now: Memory, said: Match[str], error: str, isr: tuple[int, ...]
) -> IsrChangeAnswered:
    place = said["topic"], int(said["partition"])
    return IsrChangeAnswered(
        topic=place[0],
        partition=place[1],
        leader_epoch=now.epoch_led(place),
        error=error,
        isr=isr,
    )


def _truncated(now: Memory, said: Match[str]) -> Bodies:
    place = said["topic"], int(said["partition"])
    began = now.followed.get(place)
    if began is not None:  # a known replica: not the metadata log, and no log that is being loaded
        yield LogTruncated(
            topic=place[0],
            partition=place[1],
            to_offset=int(said["to"]),
            from_log_end=began.log_end,
            high_watermark=began.high_watermark,
            leader_epoch=began.leader_epoch,
            reason="leader_epoch",
        )


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.replace(" ", "").split(",") if word)


_PLACE = r"(?P<topic>\S+)-(?P<partition>\d+)"
_REJECTING = rf"Rejecting AlterPartition request from node (?P<requester>\d+) for {_PLACE} because"
_PREFIXED = rf"\[Partition {_PLACE} broker=\d+\] "


def row(logger: str, message: str, make_events: MakeEvents) -> LogPattern:
    """A kind of line; see `LogPattern`."""
    return LogPattern(logger, re.compile(message), make_events)


BROKER_ROWS: Sequence[LogPattern] = (
    row("LoggingSignalHandler", r"Terminating process due to signal", stopping),
    row("LogManager", r"Loading logs from log dirs", recovery_began),
    row("LogManager", r"Loaded (\d+) logs in", _recovered),
    row("AppInfoParser", r"App info kafka\.server for \d+ unregistered", _stopped),
    row("logger",
         rf"Leader {_PLACE} with topic id \S+ starts at leader epoch (?P<epoch>\d+) from offset "
         r"(?P<end>\d+) with partition epoch \d+, high watermark (?P<mark>\d+), "
         r"ISR \[(?P<isr>[\d, ]*)\]", _leads),
    row("logger",
         rf"Follower {_PLACE} starts at leader epoch (?P<epoch>\d+) from offset (?P<end>\d+) "
         r"with partition epoch \d+ and high watermark (?P<mark>\d+)\. "
         r"Current leader is (?P<leader>-?\d+|None)", _follows),
    row("Partition",
         rf"{_PREFIXED}Shrinking ISR from (?P<old>[\d,]*) to (?P<new>[\d,]*)\. "
         r"Leader: \(highWatermark: (?P<mark>\d+)", _shrinks),
    row("Partition", rf"{_PREFIXED}ISR updated to (?P<isr>[\d,]*) ", _isr_stored),
    row("Partition",
         rf"{_PREFIXED}Failed to alter partition to .* rejected the request with "
         r"(?P<error>[A-Z_]{6,})", _isr_refused),
    row("UnifiedLog", rf"\[UnifiedLog partition={_PLACE}, .*\] Truncating to offset (?P<to>\d+)",
         _truncated),
)  # fmt: skip
"""Lines that brokers print in every mode. The logger `logger` is the end of Kafka's
`state.change.logger`."""

TABLE: Sequence[LogPattern] = (
    row("BrokerLifecycleManager", r"Incarnation (\S+) of broker (\d+) in .* is now STARTING",
         _broker_started),
    row("BrokerLifecycleManager", r"Successfully registered broker (\d+) with broker epoch (\d+)",
         _registered),
    row("BrokerLifecycleManager",
         r"Unable to register broker (\d+) because the controller returned error (\w+)", _refused),
    row("BrokerLifecycleManager",
         r"Broker (\d+) sent a heartbeat request but received error (\w+)", _refused),
    row("BrokerLifecycleManager", r"Transitioning from RECOVERY to RUNNING", _unfenced),
    row("BrokerLifecycleManager", r"Transitioning from \w+ to SHUTTING_DOWN", _shuts_down),
    row("ControllerServer", r"^(?:\[ControllerServer id=\d+\] )?Starting controller$",
         _controller_started),
    row("QuorumState", r"Completed transition to CandidateState\(.*?\bepoch=(\d+)", _election),
    row("QuorumState", r"Completed transition to Leader\(.*?\bepochStartOffset=(\d+)", _won),
    row("KafkaRaftClient",
         r"Vote request .*(?:replica|candidate)Epoch=(?P<epoch>\d+), "
         r"(?:replica|candidate)Id=(?P<candidate>\d+),"
         r".*lastOffsetEpoch=(?P<last>\d+), lastOffset=(?P<end>\d+)(?:, preVote=false)?\)\]\)\]\)"
         r" with epoch \d+ is (?P<answer>granted|rejected)", _voted),
    row("QuorumController",
         r"Becoming the active controller at epoch (\d+)(?:, next write offset (\d+))?",
         _elected),
    row("LeaderState", r"Did not receive fetch request from the majority", _majority_lost),
    row("QuorumController", r"Renouncing the leadership.* We were the leader at epoch (\d+)",
         _resigned),
    row("QuorumController",
         r"event failed with .* at epoch (\d+) in \d+ microseconds\. Renouncing leadership",
         _resigned),
    row("QuorumController", r"In the new epoch (\d+), the leader is (\d+)\.", _followed),
    row("MetadataLoader",
         r"publishing new image with provenance .*lastContainedOffset=(\d+), "
         r"lastContainedEpoch=(\d+)", _applied),
    row("MetadataLoader",
         r"initializing ControllerMetadataMetricsPublisher with a snapshot at offset \d+", _counts),
    row("ReplicationControlManager",
         r"Fencing broker (\d+)(?: at epoch (\d+))? because its session has timed out",
         _session_over),
    row("QuorumController", r"registerBroker: event failed with (\w+?)Exception in",
         _failed("BrokerRegistration")),
    row("QuorumController", r"processBrokerHeartbeat: event failed with (\w+?)Exception in",
         _failed("BrokerHeartbeat")),
    row("ReplicationControlManager", rf"{_REJECTING} it specified ineligible replicas",
         _rejected("INELIGIBLE_REPLICA", "ineligible_replica")),
    row("ReplicationControlManager", rf"{_REJECTING} the current partition epoch is \d+, not",
         _rejected("INVALID_UPDATE_VERSION", "stale_partition_epoch")),
    *BROKER_ROWS,
)  # fmt: skip
"""Every kind of line that makes events in KRaft mode."""


@cache
def _by_logger(table: tuple[LogPattern, ...]) -> Mapping[str, Sequence[LogPattern]]:
    loggers = {one.logger for one in table}
    return {name: tuple(one for one in table if one.logger == name) for name in loggers}
