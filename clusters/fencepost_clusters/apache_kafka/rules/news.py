"""Which records are news: two observers read each one, and the slower one repeats the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final


@final
@dataclass(slots=True)
class Newest:
    """The metadata offset of the newest record about each subject."""

    offsets: dict[int | str, int] = field(default_factory=dict)

    def take(self, subject: int | str, offset: int) -> bool:
        """Notes a record; returns whether it is newer than every known one about its subject."""
        if offset <= self.offsets.get(subject, -1):
            return False
        self.offsets[subject] = offset
        return True
