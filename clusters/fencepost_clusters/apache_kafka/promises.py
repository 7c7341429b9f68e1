"""What Kafka promises otherwise than the seed documents do, as clauses of its own, with rules.

`KR-01` is its answer to two processes with one id, where KIP-631 lets the newer win, and `KR-06`
what follows from it; `KR-02` its fencing, which is the controllers' alone; `KR-03`, `KR-04` and
`KR-05` are the seed documents' promises by the evidence that Kafka gives, and as far as it does.
`KR-07` and `KR-08` are what its metrics are worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost import Clause, Rule
from fencepost_clusters.apache_kafka import (
    rules_holding,
    rules_metrics,
    rules_serving,
    rules_sessions,
)

CLAUSES: Sequence[Clause] = tuple(
    Clause(name, "apache-kafka", ("kraft",), says)
    for name, says in (
        (
            "KR-01",
            "While the process that holds a broker id has a session, another process with that id "
            "is refused with DUPLICATE_BROKER_REGISTRATION; none holds an id twice.",
        ),
        (
            "KR-02",
            "A broker that died, stands still or is cut off from the controllers is fenced within "
            "its session timeout, counted anew from the election of a new controller.",
        ),
        (
            "KR-03",
            "A broker that works by metadata in which another one is fenced names that one to no "
            "client.",
        ),
        (
            "KR-04",
            "A broker that is asked to end in good order leaves the cluster only once it leads "
            "nothing that another could lead.",
        ),
        (
            "KR-05",
            "A produce sent to a broker that follows gets a not-leader error and has no effect, "
            "from the moment it began to follow; a fetch may be served by any replica (KIP-392).",
        ),
        (
            "KR-06",
            "A process that is refused an id changes nothing for the one that holds it, which "
            "loses no leadership by it.",
        ),
        (
            "KR-07",
            "ActiveBrokerCount, FencedBrokerCount and OfflinePartitionsCount of every controller "
            "are what the metadata log says as far as that controller has applied it.",
        ),
        (
            "KR-08",
            "ActiveControllerCount is 1 while a controller is in office and 0 while it is not; no "
            "broker's BrokerState is RUNNING before its incarnation was unfenced.",
        ),
    )
)

RULES: Sequence[Rule[Any]] = (
    rules_sessions.HolderKeepsId(),
    rules_sessions.SilentIsFenced(),
    rules_serving.FencedIsNamedToNobody(),
    rules_serving.LeavesLeadingNothing(),
    rules_serving.FollowerStoresNothing(),
    rules_holding.RefusedChangesNothing(),
    rules_metrics.CountsTheMetadata(),
    rules_metrics.SaysWhatItIs(),
)
