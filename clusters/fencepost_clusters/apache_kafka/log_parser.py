"""Makes events of the lines that a Kafka node logs, by a table with one row per kind of line.

A row has the end of the logger's name (classes have moved between packages), a pattern of the
message, and a function that makes the events. Samples of each line, as the versions print it, pin
the rows in the tests. A figure that a line does not have is -1 or empty. The log parser remembers
only facts that later lines leave out: the partitions that its node leads, and the ends of its
replicas' logs when they began to follow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from re import Match
from typing import final

from fencepost import NodeStarted, NodeStopped, ParsedEvent, Slot
from fencepost_clusters.apache_kafka.log_lines import PLACE, Bodies, LogPattern, MakeEvents, row
from fencepost_clusters.apache_kafka.log_memory import (
    Configured,
    ControllerFailed,
    FaultReported,
    Memory,
    QuorumConfigured,
    SessionConfigured,
)
from fencepost_clusters.apache_kafka.replica_lines import METADATA_LOG, REPLICA_ROWS, STORED_ROWS
from fencepost_clusters.apache_kafka.request_lines import REQUEST_ROWS
from fencepost_kafka import (
    BrokerStateChanged,
    BrokerStateName,
    BrokerStopping,
    ControllerElected,
    ControllerFollowed,
    ControllerResigned,
    ElectionStarted,
    HeartbeatRefused,
    LeaseExpired,
    MetadataApplied,
    NodeWarned,
    QuorumLearned,
    RecoveryEnded,
    RecoveryStarted,
    RequestRefused,
    ResignReason,
    Role,
    StateReason,
    StateReverted,
    VoteAnswered,
    VoteReason,
)

LINE = re.compile(r"@(\d+) [A-Z]+ (\S+) (.*)")
"""A line as the layout in log4j2.properties prints it."""
_VOTER = re.compile(r"ReplicaKey\(id=(\d+),.*?=([\w.-]+)/[^:]*:(\d+)\}")
"""A voter in the text of a VoterSet, with the address of its one listener."""
_WARNINGS = frozenset({"WARN", "ERROR", "FATAL"})
_UNREGISTERED = "Unable to register the broker because"
"""What a broker says at INFO that finds no controller to register with."""
_WARNED_EACH_NS = 1_000_000_000
_WORDS_KEPT = 300
CONTROLLED_SHUTDOWN_MS = 300_000
"""How long a broker waits for its shutdown to be granted; Kafka has no setting for it."""


@final
class KafkaLogParser:
    """The log parser of one process of the node in a slot; see the module."""

    def __init__(
        self,
        slot: Slot,
        configured: Configured,
        *,
        table: Sequence[LogPattern] | None = None,
    ) -> None:
        """`table` are the kinds of line, those of KRaft mode unless given. Only these say that a
        node has joined, until which its warnings are events."""
        self._memory = Memory(
            slot.node_id,
            configured,
            registers=slot.role is Role.BROKER,
            joined=table is not None,
        )
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
                # The first row that matches takes the line: further rows of the logger are not
                # tried.
                self._memory.at_ns = at_ns
                return [ParsedEvent(at_ns, body) for body in one.make_events(self._memory, found)]
        return self._warning(at_ns, line.split(" ", 2)[1], logger, message)

    def _warning(self, at_ns: int, level: str, logger: str, message: str) -> Sequence[ParsedEvent]:
        """Why a node does not join, by its own word. Each attempt may fail in the same way, many
        times a second."""
        now = self._memory
        soon = now.warned_ns is not None and at_ns - now.warned_ns < _WARNED_EACH_NS
        warns = level in _WARNINGS or _UNREGISTERED in message
        # After a node has joined, its warnings are not needed: they only explain why it does not
        # join.
        if now.joined or soon or not warns:
            return ()
        now.warned_ns = at_ns
        first = message.partition("\\n")[0][:_WORDS_KEPT]
        name = logger.rpartition(".")[2]
        return (ParsedEvent(at_ns, NodeWarned(level=level, logger=name, message=first)),)


# ------------------------------------------------------------------------------- a broker's life


def _broker_started(now: Memory, said: Match[str]) -> Bodies:
    yield NodeStarted(role="broker", node_id=int(said[2]), incarnation=said[1], log_end=-1)
    yield SessionConfigured(broker_id=int(said[2]), timeout_ms=now.configured.session_ms)


def _registered(now: Memory, said: Match[str]) -> Bodies:
    now.broker_epoch, now.joined = int(said[2]), True
    # A broker is registered as fenced, until a heartbeat's answer says otherwise.
    yield becomes(now, "FENCED", "registered")


def _unfenced(now: Memory, said: Match[str]) -> Bodies:
    yield becomes(now, "ACTIVE", "unfenced")
    # A broker has no listener before it is unfenced: from now on it serves its partitions.
    yield from now.led.values()


def stopping(now: Memory, said: Match[str]) -> Bodies:
    """The event of a broker that is asked to stop, or begins to."""
    # A broker prints several lines as it is asked to stop: the first one counts.
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
    yield QuorumConfigured(node_id=now.node_id, fetch_timeout_ms=now.configured.fetch_timeout_ms)


def _voters(now: Memory, said: Match[str]) -> Bodies:
    read = {int(found[1]): f"{found[2]}:{found[3]}" for found in _VOTER.finditer(said[1])}
    voters = tuple(sorted(read))
    yield QuorumLearned(
        voters=voters,
        endpoints=tuple(read[one] for one in voters),
        bootstrap=now.configured.bootstrap if now.registers else (),
    )


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
    now.active_epoch, now.majority_lost, now.joined = int(said[1]), False, True
    # Before Kafka 3.4, only the line of the won election says where the log ends.
    end = now.elected_at if said[2] is None else int(said[2])
    yield ControllerElected(epoch=int(said[1]), log_end=end, last_epoch=-1)


def _majority_lost(now: Memory, said: Match[str]) -> Bodies:
    now.majority_lost = True
    yield from ()


def _resigned(now: Memory, said: Match[str]) -> Bodies:
    # The line of the resignation names no reason: a line before says that the majority was lost.
    yield from _left(now, said, "no_majority" if now.majority_lost else "higher_epoch")


def _gave_up(now: Memory, said: Match[str]) -> Bodies:
    epoch = int(said["epoch"])
    yield ControllerFailed(epoch=epoch, doing=said["doing"], error=said["error"].strip())
    yield from _left(now, said, "failed")


def _left(now: Memory, said: Match[str], reason: ResignReason) -> Bodies:
    """It is the active controller no more, and drops what is not committed."""
    epoch = int(said["epoch"])
    now.active_epoch, now.majority_lost = -1, False
    yield ControllerResigned(epoch=epoch, reason=reason)
    # Some versions do not name the offset to which they revert: then no event can say it.
    if said["stable"] is not None:
        committed = now.marks.get(METADATA_LOG, 0)
        yield StateReverted(offset=int(said["stable"]) + 1, high_watermark=committed, epoch=epoch)


def _ends_itself(now: Memory, said: Match[str]) -> Bodies:
    """A process ends since one of its threads failed. If it leads, its leadership ends with it."""
    epoch, now.active_epoch, now.majority_lost = now.active_epoch, -1, False
    # Only a node that is the active controller has an epoch here.
    if epoch >= 0:
        doing, error = f"the {said['doing'] or 'process'}", said["error"].strip()
        yield ControllerFailed(epoch=epoch, doing=doing, error=error)
        yield ControllerResigned(epoch=epoch, reason="failed")
    else:
        yield from _reported(now, said)


def _reported(now: Memory, said: Match[str]) -> Bodies:
    yield FaultReported(what=said["what"], error=said["error"].strip())


def _followed(now: Memory, said: Match[str]) -> Bodies:
    # By the layer that knows. A QuorumController of Kafka 3.3 that registers its listener after
    # this learns no leader until the next epoch.
    if not now.registers:
        now.joined = True
        yield ControllerFollowed(epoch=int(said[1]), leader=int(said[2]))


def _applied(now: Memory, said: Match[str]) -> Bodies:
    now.image = MetadataApplied(offset=int(said[1]), epoch=int(said[2]))
    if now.registers or now.counts:
        yield now.image


def _published(now: Memory, said: Match[str]) -> Bodies:
    """A broker begins to apply an image. From 3.5 on, its loader has said so before."""
    image = MetadataApplied(offset=int(said[1]), epoch=int(said[2]))
    # A version whose loader and broker both print a line must not make two events of one image.
    if image != now.image:
        now.image = image
        yield image


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
        lease_period_ms=now.configured.session_ms,
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


_REJECTING = rf"Rejecting AlterPartition request from node (?P<requester>\d+) for {PLACE} because"

BROKER_ROWS: Sequence[LogPattern] = (
    row("LoggingSignalHandler", r"Terminating process due to signal", stopping),
    row("LogManager", r"Loading logs from log dirs", recovery_began),
    row("LogManager", r"Loaded (\d+) logs in", _recovered),
    row("AppInfoParser", r"App info kafka\.server for \d+ unregistered", _stopped),
    *REPLICA_ROWS,
)
"""Lines that brokers print in every mode."""

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
    row("KRaftControlRecordStateMachine", r"Latest set of voters is VoterSet\(voters=(\{.*\})\)",
         _voters),
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
    row("QuorumController",
         r"Renouncing the leadership.* We were the leader at epoch (?P<epoch>\d+)"
         r"(?:.*Reverting to last (?:stable|committed) offset (?P<stable>-?\d+))?", _resigned),
    row("QuorumController",
         r"event failed with .* at epoch (?P<epoch>\d+) in \d+ microseconds\. Renouncing leadership"
         r"(?: and reverting to the last committed offset (?P<stable>-?\d+))?", _resigned),
    row("LoggingFaultHandler",
         r"Encountered quorum controller fault: (?P<doing>\w+): event failed with .* at epoch "
         r"(?P<epoch>\d+) in \d+ microseconds\. Renouncing leadership"
         r"(?: and reverting to the last committed offset (?P<stable>-?\d+))?\. *"
         r"(?P<error>.*?)(?:\\n|$)", _gave_up),
    row("LoggingFaultHandler",
         r"Encountered (?P<what>(?!quorum controller fault: \w+: event failed).+?) fault: "
         r"(?P<error>.*?)(?:\\n|$)", _reported),
    row("ProcessTerminatingFaultHandler",
         r"Encountered (?P<what>.+?) fault: (?:Unexpected error in (?P<doing>[^:]+?)  )?"
         r"(?P<error>.*?)(?:\\n|$)", _ends_itself),
    row("QuorumController",
         # Up to 3.5, in which a fault handler says no more of it.
         r"(?P<doing>\w+): failed with unknown server exception (?P<error>\w+) at epoch "
         r"(?P<epoch>\d+) in \d+ us\. +Renouncing leadership and reverting to the last committed "
         r"offset (?P<stable>-?\d+)", _gave_up),
    row("QuorumState",
         # `leaderId=101` up to 3.7, `leader=controller-1:9093 (id: 101 rack: null)` in 3.8.
         r"Completed transition to FollowerState\(.*?\bepoch=(\d+), "
         r"leader(?:Id)?=(?:[^ ,]+ \(id: )?(\d+)\b",
         _followed),
    row("MetadataLoader",
         r"publishing new image with provenance .*lastContainedOffset=(\d+), "
         r"lastContainedEpoch=(\d+)", _applied),
    row("BrokerMetadataPublisher",
         r"Publishing (?:initial )?metadata at offset OffsetAndEpoch\(offset=(\d+), epoch=(\d+)\)",
         _published),
    row("MetadataLoader",
         r"initializing ControllerMetadataMetricsPublisher with a snapshot at offset \d+", _counts),
    row("ReplicationControlManager",
         r"Fencing broker (\d+)(?: at epoch (\d+))? because its session has timed out",
         _session_over),
    row("QuorumController", r"registerBroker: (?:event )?failed with (\w+?)Exception in",
         _failed("BrokerRegistration")),
    row("QuorumController", r"processBrokerHeartbeat: (?:event )?failed with (\w+?)Exception in",
         _failed("BrokerHeartbeat")),
    row("ReplicationControlManager", rf"{_REJECTING} it specified ineligible replicas",
         _rejected("INELIGIBLE_REPLICA", "ineligible_replica")),
    row("ReplicationControlManager", rf"{_REJECTING} the current partition epoch is \d+, not",
         _rejected("INVALID_UPDATE_VERSION", "stale_partition_epoch")),
    *BROKER_ROWS,
    *STORED_ROWS,
    *REQUEST_ROWS,
)  # fmt: skip
"""Every kind of line that makes events in KRaft mode."""


@cache
def _by_logger(table: tuple[LogPattern, ...]) -> Mapping[str, Sequence[LogPattern]]:
    loggers = {one.logger for one in table}
    return {name: tuple(one for one in table if one.logger == name) for name in loggers}
