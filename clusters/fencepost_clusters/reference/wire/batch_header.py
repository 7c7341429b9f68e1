"""The header of a record batch of magic 2."""

from __future__ import annotations

from msgspec import Struct

CONTROL = 0x20
"""The attribute of a batch that the log itself needs, and no client sees."""
_TRANSACTIONAL = 0x10


class BatchHeader(Struct, frozen=True, gc=False, kw_only=True):
    """The first 61 bytes of a batch; `size` is the whole batch's, in bytes; times in ms."""

    base_offset: int
    size: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    crc: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)
