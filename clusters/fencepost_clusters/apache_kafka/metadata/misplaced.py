"""The event of a replica that the metadata has in a directory which its broker does not have."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class ReplicaMisplaced(Struct, frozen=True, tag="apache_kafka.replica_misplaced", kw_only=True):
    """A committed record says that a broker has its replica in a directory which the broker, by its
    registration, does not have (KIP-858). The controller takes such a replica for offline."""

    offset: int
    topic: str
    partition: int
    broker_id: int
    directory: str

    def sentence(self) -> str:
        return (
            f"committed at offset {self.offset}: broker {self.broker_id} has "
            f"{self.topic}-{self.partition} in the directory {self.directory}, which it has not "
            "registered"
        )

    def concerns(self) -> Sequence[str]:
        return (f"partition {self.topic}-{self.partition}", f"broker {self.broker_id}")
