"""The batches of idempotent producers that a broker refused and that may be sent again."""

from __future__ import annotations

from typing import Final

from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.batch_header import BatchHeader
from fencepost_clusters.reference.wire.errors import Error

Place = tuple[str, int]
"""A partition: its topic's name and its index."""
SENT_AGAIN = frozenset(
    (
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NOT_ENOUGH_REPLICAS,
    )
)
"""The errors after which a client sends the same batch again, with the same sequence number."""
MOST: Final = 10_000
"""How many producers of partitions are remembered; the oldest are forgotten first."""


class RefusedBatches:
    """For each producer and partition, the earliest batch that was refused and not stored since.

    A producer of which the log holds no batch may begin with any sequence number (KIP-360). But a
    producer has several batches under way. If its first one is refused, for example since this
    broker does not lead yet, and its second one is stored, the first one is out of order for good.
    librdkafka takes it for stored then, and reports it as acknowledged. So the second one is
    refused too, until the first one comes again.
    """

    def __init__(self) -> None:
        self._earliest: dict[tuple[Place, int], tuple[int, int]] = {}

    def refused(self, place: Place, records: bytes, error: Error) -> None:
        """A client's batches were refused with this error."""
        if error not in SENT_AGAIN:
            return
        try:
            header = record_batch.parse(records, verify=False)
        except record_batch.CorruptBatch:
            return
        if header.producer_id < 0:
            return
        of = (place, header.producer_id)
        epoch, sequence = self._earliest.pop(of, (-1, 0))
        if header.producer_epoch > epoch:
            epoch, sequence = header.producer_epoch, header.base_sequence
        elif header.producer_epoch == epoch:
            sequence = min(sequence, header.base_sequence)
        self._earliest[of] = (epoch, sequence)
        if len(self._earliest) > MOST:
            del self._earliest[next(iter(self._earliest))]

    def stored(self, place: Place, header: BatchHeader) -> None:
        """A batch was stored, so the log itself holds what is needed to check later ones."""
        self._earliest.pop((place, header.producer_id), None)

    def precede(self, place: Place, header: BatchHeader) -> bool:
        """Whether an earlier batch of this producer was refused, and would come too late if this
        one were stored."""
        epoch, sequence = self._earliest.get((place, header.producer_id), (-1, 0))
        return header.producer_epoch == epoch and header.base_sequence > sequence
