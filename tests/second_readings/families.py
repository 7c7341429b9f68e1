"""The families of clauses that have a second reading: where their histories come from, and what
these are cut to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from msgspec import Struct

from fencepost.judging.folder import Promises
from second_readings.mutations import MOST_FROM_BEGIN
from second_readings.reading import READINGS

REFERENCE = ("reference/quorum", "reference/legacy", "reference/classic")
KAFKA = ("kraft", "zookeeper")
PARTITION = ("topic", "partition")


@final
@dataclass(frozen=True)
class Family:
    """Clauses by the begin of their ids; the systems that are simulated for them (none: only
    recorded runs show them), and the fields whose values are the keys of their histories."""

    name: str
    prefixes: tuple[str, ...]
    systems: tuple[str, ...]
    key: tuple[str, ...]
    by_harness: bool = False
    """Whether the harness judges them itself, so that its words are changed, too."""
    window: bool = True
    """Whether a history may begin in the middle of its run. Not where a first event decides, such
    as an election, for what follows."""
    most: int = MOST_FROM_BEGIN
    """How many events of a run without a window are kept. A run that is cut short leaves most
    clauses undecided that nothing has exercised."""
    recorded: tuple[str, ...] = ()
    """The planes of the recorded runs that show them."""

    @property
    def clauses(self) -> Sequence[str]:
        return [clause for clause in READINGS if clause.startswith(self.prefixes)]

    def kinds(self, promises: Promises) -> frozenset[type[Struct]]:
        """The kinds of events that the readings or the rules of these clauses read."""
        wanted = frozenset(self.clauses)
        rules = [rule.kinds for rule in promises.rules if rule.clause in wanted]
        return frozenset().union(*rules, *(READINGS[clause].kinds for clause in wanted))


FAMILIES = (
    Family("JEPSEN", ("JEPSEN-",), REFERENCE, PARTITION, recorded=KAFKA),
    Family("AVAIL", ("AVAIL-",), REFERENCE, PARTITION, by_harness=True, recorded=KAFKA),
    Family("ETCD", ("ETCD-",), (), ("key",), window=False, recorded=("raft",)),
    Family("KR", ("KR-",), (), PARTITION, window=False, most=4_000, recorded=("kraft",)),
    Family("BE", ("BE-",), REFERENCE[1:2], ("broker_id",), window=False),
    Family("HB", ("HB-",), REFERENCE[1:2], PARTITION, window=False, most=4_000),
    Family("QC", ("QC-", "REG-"), REFERENCE[:1], PARTITION, window=False, recorded=("kraft",)),
    Family("RP", ("RP-",), REFERENCE, PARTITION, window=False, recorded=KAFKA),
)


def family(name: str) -> Family:
    return next(one for one in FAMILIES if one.name == name)
