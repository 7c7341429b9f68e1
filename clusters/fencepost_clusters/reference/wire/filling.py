"""Puts into an answer what a log's bytes say: a core knows the index of a log, and a shell its
bytes."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.record_times import first_from

Read = Callable[[str, int, int], bytes]
"""The whole batches of a log, from the one at an offset up to (not including) another offset."""


def filled(answer: m.Response | None, read: Read) -> m.Response | None:
    """The same answer with the records that its slices name, and the offsets that it searches."""
    if type(answer) is m.FetchResponse and _has_slices(answer):
        fetched = tuple(
            replace(one, partitions=tuple(_with_records(part, read) for part in one.partitions))
            for one in answer.responses
        )
        return replace(answer, responses=fetched)
    if type(answer) is m.ListOffsetsResponse:
        listed = tuple(
            replace(one, partitions=tuple(_with_offset(part, read) for part in one.partitions))
            for one in answer.topics
        )
        return replace(answer, topics=listed)
    return answer


def _has_slices(answer: m.FetchResponse) -> bool:
    for one in answer.responses:
        for part in one.partitions:
            if type(part.records) is m.LogSlice:
                return True
    return False


def _with_records(part: m.PartitionData, read: Read) -> m.PartitionData:
    wanted = part.records
    if not isinstance(wanted, m.LogSlice):
        return part
    return replace(part, records=read(wanted.log, wanted.start, wanted.end))


def _with_offset(
    part: m.ListOffsetsPartitionResponse, read: Read
) -> m.ListOffsetsPartitionResponse:
    wanted = part.search
    if wanted is None:
        return part
    batch = read(wanted.batch.log, wanted.batch.start, wanted.batch.end)
    offset, timestamp = first_from(batch, wanted.timestamp)
    return replace(part, offset=offset, timestamp=timestamp, search=None)
