"""Makes events of the lines that brokers log about their replicas."""

from __future__ import annotations

import re
from collections.abc import Sequence
from re import Match

from fencepost import MS
from fencepost_clusters.apache_kafka.log_lines import PLACE, Bodies, LogPattern, ids, row
from fencepost_clusters.apache_kafka.log_memory import IsrRequestForgotten, Memory
from fencepost_kafka import (
    FollowingStarted,
    HighWatermarkAdvanced,
    IsrChangeAnswered,
    IsrChangeAsked,
    LeadershipEnded,
    LeadershipStarted,
    LogAppended,
    LogTruncated,
    MetadataTruncated,
    TopicPartition,
)

METADATA_LOG: TopicPartition = ("__cluster_metadata", 0)


def _place(said: Match[str]) -> TopicPartition:
    return said["topic"], int(said["partition"])


def _appended(now: Memory, said: Match[str]) -> Bodies:
    place = _place(said)
    role = now.led.get(place) or now.followed.get(place)
    if role is not None:  # a known replica, as in `_truncated`
        base, end = int(said["base"]), int(said["next"])
        expected = now.ends.appends(place, base, end)
        yield LogAppended(
            topic=place[0],
            partition=place[1],
            base_offset=base,
            log_end=end,
            expected_base=expected,
            batch_epoch=-1,
            leader_epoch=role.leader_epoch,
            as_leader=place in now.led,
            digest="",
            producer_id=-1,
            base_sequence=-1,
        )


def _marked(now: Memory, said: Match[str]) -> Bodies:
    place, mark = _place(said), int(said["mark"])
    role = now.led.get(place) or now.followed.get(place)
    # A mark that is known already is no advance.
    if role is not None and now.marks.get(place) != mark:
        now.marks[place] = mark
        yield HighWatermarkAdvanced(
            topic=place[0],
            partition=place[1],
            high_watermark=mark,
            log_end=now.ends.known.get(place, mark),
            leader_epoch=role.leader_epoch,
            as_leader=place in now.led,
            isr=(),
            counted=(),
        )


def _counted(now: Memory, said: Match[str]) -> Bodies:
    now.follower_ends[_place(said), int(said["replica"])] = int(said["end"])
    yield from ()


def _expands(now: Memory, said: Match[str]) -> Bodies:
    place = _place(said)
    led = now.led.get(place)
    # A request without a known leadership has no epoch start that a follower must have reached.
    if led is None:
        return
    now.joining[place] = int(said["partition_epoch"]), int(said["joining"])
    own = now.ends.known.get(place, -1)
    new = tuple(int(found[1] or found[2]) for found in _MEMBER.finditer(said["new"]))
    yield IsrChangeAsked(
        topic=place[0],
        partition=place[1],
        leader_epoch=int(said["epoch"]),
        broker_epoch=now.broker_epoch,
        old_isr=ids(said["old"]),
        new_isr=new,
        ends=tuple(
            own if one == now.node_id else now.follower_ends.get((place, one), -1) for one in new
        ),
        # It may have moved since the leader compared the follower with it.
        high_watermark=-1,
        epoch_start=led.log_end,
        lag_ns=0,
    )


def _leads(now: Memory, said: Match[str]) -> Bodies:
    place = _place(said)
    began = LeadershipStarted(
        topic=place[0],
        partition=place[1],
        leader_epoch=int(said["epoch"]),
        isr=ids(said["isr"]),
        log_start=-1,
        log_end=int(said["end"]),
        high_watermark=int(said["mark"]),
        keep_in_sync_ms=now.configured.keep_in_sync_ms,
    )
    now.led[place] = began
    now.followed.pop(place, None)
    now.replica_began(place, began)
    # Before it is unfenced a broker serves nobody: these events come once it is (`_unfenced`).
    if now.state == "ACTIVE":
        yield began


def _follows(now: Memory, said: Match[str]) -> Bodies:
    place = _place(said)
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
    now.replica_began(place, began)
    yield began


def _removed(now: Memory, said: Match[str]) -> Bodies:
    """The line does not say whether its topic is deleted, or the broker is a replica no more."""
    place = _place(said)
    now.followed.pop(place, None)
    led = now.led.pop(place, None)
    if led is not None and now.state == "ACTIVE":
        yield LeadershipEnded(
            topic=place[0], partition=place[1], leader_epoch=led.leader_epoch, reason="unassigned"
        )


def _shrinks(now: Memory, said: Match[str]) -> Bodies:
    place = _place(said)
    new = ids(said["new"])
    yield IsrChangeAsked(
        topic=place[0],
        partition=place[1],
        leader_epoch=now.epoch_led(place),
        broker_epoch=now.broker_epoch,
        old_isr=ids(said["old"]),
        new_isr=new,
        ends=(-1,) * len(new),
        high_watermark=int(said["mark"]),
        epoch_start=-1,
        lag_ns=now.configured.keep_in_sync_ms * MS,  # at least: no other follower is dropped
    )


def _isr_stored(now: Memory, said: Match[str]) -> Bodies:
    yield _isr_answered(now, said, "NONE", ids(said["isr"]))


def _isr_refused(now: Memory, said: Match[str]) -> Bodies:
    yield _isr_answered(now, said, said["error"], ())


def _isr_answered(
    now: Memory, said: Match[str], error: str, isr: tuple[int, ...]
) -> IsrChangeAnswered:
    place = _place(said)
    now.joining.pop(place, None)
    return IsrChangeAnswered(
        topic=place[0],
        partition=place[1],
        leader_epoch=now.epoch_led(place),
        error=error,
        isr=isr,
    )


def _leads_already(now: Memory, said: Match[str]) -> Bodies:
    place, epoch = _place(said), int(said["partition_epoch"])
    asked = now.joining.pop(place, None)
    # A record of another partition epoch is no record of the present ISR: then the request is not
    # forgotten.
    if asked is not None and asked[0] == epoch:
        yield IsrRequestForgotten(
            topic=place[0],
            partition=place[1],
            leader_epoch=int(said["epoch"]),
            partition_epoch=epoch,
            joining=asked[1],
        )


def _truncated(now: Memory, said: Match[str]) -> Bodies:
    place = _place(said)
    began = now.followed.get(place)
    if began is not None:  # a known replica: not the metadata log, and no log that is being loaded
        now.ends.cuts(place, int(said["to"]))
        yield LogTruncated(
            topic=place[0],
            partition=place[1],
            to_offset=int(said["to"]),
            from_log_end=began.log_end,
            high_watermark=began.high_watermark,
            leader_epoch=began.leader_epoch,
            reason="leader_epoch",
        )


def _metadata_appended(now: Memory, said: Match[str]) -> Bodies:
    now.ends.known[METADATA_LOG] = int(said["next"])
    yield from ()


def _metadata_marked(now: Memory, said: Match[str]) -> Bodies:
    now.marks[METADATA_LOG] = int(said["mark"])
    yield from ()


def _metadata_truncated(now: Memory, said: Match[str]) -> Bodies:
    before = now.ends.known.get(METADATA_LOG, -1)
    now.ends.cuts(METADATA_LOG, int(said["to"]))
    yield MetadataTruncated(
        from_offset=int(said["to"]),
        log_end=before,
        high_watermark=now.marks.get(METADATA_LOG, 0),
        epoch=now.active_epoch,
    )


_PREFIXED = rf"\[Partition {PLACE} broker=\d+\] "
_LOG = rf"^\[UnifiedLog partition=(?!__cluster_metadata){PLACE}, [^\]]*\] "
_METADATA = r"^\[UnifiedLog partition=__cluster_metadata-0, [^\]]*\] "
_MEMBER = re.compile(r"brokerId=(\d+)|(?<=[(\s])(\d+)(?=[,)])")
"""A member of an ISR: with its broker epoch, or a number alone in a list."""

REPLICA_ROWS: Sequence[LogPattern] = (
    row("logger",
         rf"Leader {PLACE} with topic id \S+ starts at leader epoch (?P<epoch>\d+) from offset "
         r"(?P<end>\d+) with partition epoch \d+, high watermark (?P<mark>\d+), "
         r"ISR \[(?P<isr>[\d, ]*)\]", _leads),
    row("logger",
         rf"Follower {PLACE} starts at leader epoch (?P<epoch>\d+) from offset (?P<end>\d+) "
         r"with partition epoch \d+ and high watermark (?P<mark>\d+)\. "
         r"Current leader is (?P<leader>-?\d+|None)", _follows),
    row("logger",
         rf"Skipped the become-leader state change for {PLACE} with topic id .*"
         r"partitionEpoch=(?P<partition_epoch>\d+).* since it is already the leader with leader "
         r"epoch (?P<epoch>\d+)\.", _leads_already),
    row("LogManager",
         rf"Log for partition {PLACE} is renamed to .* and is scheduled for deletion", _removed),
    row("Partition",
         rf"{_PREFIXED}Shrinking ISR from (?P<old>[\d,]*) to (?P<new>[\d,]*)\. "
         r"Leader: \(highWatermark: (?P<mark>\d+)", _shrinks),
    row("Partition", rf"{_PREFIXED}ISR updated to (?P<isr>[\d,]*) ", _isr_stored),
    row("Partition",
         rf"{_PREFIXED}Failed to alter partition to .* rejected the request with "
         r"(?P<error>[A-Z_]{6,})", _isr_refused),
    row("UnifiedLog", rf"{_LOG}Truncating to offset (?P<to>\d+)",
         _truncated),
)  # fmt: skip
"""Lines that brokers print in every mode. The logger `logger` is the end of Kafka's
`state.change.logger`."""

STORED_ROWS: Sequence[LogPattern] = (
    row("UnifiedLog",
        rf"{_LOG}Appended message set with last offset: \d+, first offset: "
        # `Some((offset=0 segment=[0:0]))` in 3.3, `Optional[(offset=0, segment=[0:0])]` in 3.6.
        r"(?:\w+[(\[]\(offset=)?(?P<base>\d+).*?, next offset: (?P<next>\d+),", _appended),
    # `(offset=0 segment=[0:0])` in 3.3, `(offset=0segment=[0:0])` in 3.5, with a comma from 3.6 on.
    row("UnifiedLog", rf"{_LOG}Setting high watermark \(offset=(?P<mark>\d+)", _marked),
    row("Partition",
        rf"{_PREFIXED}Recorded replica (?P<replica>\d+) log end offset \(LEO\) position "
        r"(?P<end>\d+)", _counted),
    row("Partition",
        rf"{_PREFIXED}Submitting ISR state change PendingExpandIsr\("
        r"newInSyncReplicaId=(?P<joining>\d+), .*?leaderEpoch=(?P<epoch>\d+), "
        # `isr=List(1, 2)` up to 3.4, without broker epochs (KIP-903).
        r"isr(?:WithBrokerEpoch)?=(?P<new>.*?), leaderRecoveryState.*?"
        r"partitionEpoch=(?P<partition_epoch>\d+).*"
        r"lastCommittedState=CommittedPartitionState[\[(]isr=(?:\[|Set\()(?P<old>[\d, ]*)",
        _expands),
    row("UnifiedLog", rf"{_METADATA}Appended message set with .*, next offset: (?P<next>\d+),",
        _metadata_appended),
    row("UnifiedLog", rf"{_METADATA}Setting high watermark \(offset=(?P<mark>\d+)",
        _metadata_marked),
    row("UnifiedLog", rf"{_METADATA}Truncating to offset (?P<to>\d+)", _metadata_truncated),
)  # fmt: skip
"""What a replica stores, and how far it is committed, at DEBUG and TRACE; also of the metadata."""
