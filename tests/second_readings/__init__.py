"""A second reading of clauses: slow statements of their sentences, to compare the rules with.

A rule is a fold: it sees one event after the other, keeps little, and excuses much. So it may be
wrong in ways that its author did not think of, and its tests were written by the same author. Here
a clause's sentence is stated a second time, over a *whole* history, at any cost, by somebody who
has read the clause, its document and the kinds of events, and not the rule. Histories of runs are
changed at random (`mutations`) and judged by both (`comparison`). If one says violated and
the other sees nothing, one of them is wrong.

A reading is never mended by copying what the rule does. The clause's document decides.
"""

from __future__ import annotations

from second_readings import (
    availability,
    clients,
    etcd,
    kraft,
    over_zookeeper,
    quorum,
    replication,
)
from second_readings.reading import READINGS, History, Says, Word

__all__ = [
    "READINGS",
    "History",
    "Says",
    "Word",
    "availability",
    "clients",
    "etcd",
    "kraft",
    "over_zookeeper",
    "quorum",
    "replication",
]
