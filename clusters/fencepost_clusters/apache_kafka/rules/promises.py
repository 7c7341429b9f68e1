"""Kafka's own promises, which no seed document makes, and the rules that judge Kafka alone.

A promise that a seed document makes as well is a clause of that document: here is only a rule for
it that is a witness on Kafka alone (`Rule.planes`), by what Kafka's nodes show. `KR-01` is about
two processes with one id (in KIP-631 the newer one wins), and `KR-06` about the consequence.
`KR-02` is Kafka's fencing, which only the controllers do. `KR-04` and `KR-05` are promises of the
seed documents as far as Kafka keeps them. `KR-07` and `KR-08` are about its metrics. `KR-09`,
`KR-10` and `KR-11` are about epochs, and tell releases apart. `KR-18` and `KR-19` are about
heartbeats as controllers answer them, `KR-21`, `KR-22` and `KR-29` about records, `KR-24` about
the metadata that controllers hold, `KR-28` about answers, `KR-33` and `KR-34` about new
partitions, `KR-36` about failures of a controller, `KR-37` and `KR-38` about the files beside a
replica's segments, and `KR-39` about the faults that nodes report of themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost import Clause, Rule
from fencepost_clusters.apache_kafka.rules import answers as rules_answers
from fencepost_clusters.apache_kafka.rules import beside_segments as rules_beside
from fencepost_clusters.apache_kafka.rules import created as rules_created
from fencepost_clusters.apache_kafka.rules import deleted as rules_deleted
from fencepost_clusters.apache_kafka.rules import epochs as rules_epochs
from fencepost_clusters.apache_kafka.rules import failures as rules_failures
from fencepost_clusters.apache_kafka.rules import heartbeats as rules_heartbeats
from fencepost_clusters.apache_kafka.rules import holding as rules_holding
from fencepost_clusters.apache_kafka.rules import metadata as rules_metadata
from fencepost_clusters.apache_kafka.rules import metrics as rules_metrics
from fencepost_clusters.apache_kafka.rules import records as rules_records
from fencepost_clusters.apache_kafka.rules import restarted as rules_restarted
from fencepost_clusters.apache_kafka.rules import serving as rules_serving
from fencepost_clusters.apache_kafka.rules import sessions as rules_sessions
from fencepost_clusters.apache_kafka.rules import stored as rules_stored
from fencepost_clusters.apache_kafka.rules import voters as rules_voters
from fencepost_kafka.judging.generations import of_replicas

CLAUSES: Sequence[Clause] = tuple(
    Clause(name, "apache-kafka", ("kraft",), says)
    for name, says in (
        (
            "KR-01",
            "While the process that holds a broker id has a session, another process with that id "
            "is refused with DUPLICATE_BROKER_REGISTRATION; an id has one holder at a time.",
        ),
        (
            "KR-02",
            "A broker that died, stalls or is cut off from the controllers is fenced within its "
            "session timeout, counted again from the election of a new controller.",
        ),
        (
            "KR-04",
            "A broker that is asked to shut down leaves the cluster only once it leads nothing "
            "that another broker could lead.",
        ),
        (
            "KR-05",
            "A produce sent to a broker that follows gets a not-leader error and has no effect, "
            "from the moment it began to follow; a fetch may be served by any replica (KIP-392).",
        ),
        (
            "KR-06",
            "A process that is refused an id changes nothing for the process that holds it, "
            "which loses no leadership because of it.",
        ),
        (
            "KR-07",
            "ActiveBrokerCount, FencedBrokerCount and OfflinePartitionsCount of every controller "
            "agree with the metadata log, as far as that controller has applied it.",
        ),
        (
            "KR-08",
            "ActiveControllerCount is 1 while a controller is active and 0 otherwise; no "
            "broker's BrokerState is RUNNING before its incarnation was unfenced.",
        ),
        (
            "KR-09",
            "An active controller that no majority of the voters reaches gives its leadership up "
            "after one and a half fetch timeouts (KIP-595, KAFKA-15489).",
        ),
        (
            "KR-10",
            "While its leader stays and no replica leaves it, a partition begins no leader epoch, "
            "whatever its ISR becomes (KAFKA-15021).",
        ),
        (
            "KR-11",
            "A voter that was cut off from all others and returns deposes no active controller "
            "(KIP-996).",
        ),
        (
            "KR-18",
            "A controller ends a broker's session no earlier than the session timeout after the "
            "last heartbeat that it accepted; the answers name no time.",
        ),
        (
            "KR-19",
            "A heartbeat with another epoch than that of the broker's newest registration is "
            "refused with STALE_BROKER_EPOCH.",
        ),
        (
            "KR-21",
            "A reassignment ends by a record whose ISR has every new replica, and without the "
            "replicas that were to be removed.",
        ),
        (
            "KR-22",
            "The batch that unregisters a broker takes it out of every ISR that has other members, "
            "and from its leaderships; until it registers again it gets none.",
        ),
        ("KR-24", "Each controller holds in memory the state that the metadata log leads to."),
        (
            "KR-28",
            "A broker's process answers no produce, fetch or metadata request before it is "
            "registered.",
        ),
        (
            "KR-29",
            "When a broker is fenced, each partition that it led goes to the first live member of "
            "its ISR in the order of its replicas, so they are shared as they are placed.",
        ),
        (
            "KR-33",
            "A new partition has a leader from its first record on, which is a member of its ISR; "
            "and its ISR is of its replicas.",
        ),
        (
            "KR-34",
            "A running broker that applies a new partition of which it is a replica begins to "
            "lead or to follow it.",
        ),
        (
            "KR-36",
            "An active controller answers with an error what it cannot carry out, and does not "
            "give its leadership up for it.",
        ),
        (
            "KR-37",
            "The leader epochs that a replica stores beside its log are those of its batches "
            "(KIP-101).",
        ),
        (
            "KR-38",
            "What a replica stores of producers as of an offset is what the batches below that "
            "offset say of them.",
        ),
        (
            "KR-39",
            "A node meets no fault that it has no answer for: it loads, applies and publishes all "
            "metadata, and none of its threads fails.",
        ),
    )
)

RULES: Sequence[Rule[Any]] = (
    rules_sessions.HolderKeepsId(),
    rules_sessions.SilentIsFenced(),
    rules_serving.FencedIsLeftOut(),
    rules_serving.LeavesLeadingNothing(),
    rules_serving.FollowerStoresNothing(),
    rules_holding.RefusedChangesNothing(),
    rules_metrics.CountsTheMetadata(),
    rules_metrics.ReportsItsState(),
    rules_epochs.WithoutMajorityResigns(),
    rules_epochs.IsrBeginsNoEpoch(),
    rules_epochs.ReturnDeposesNone(),
    rules_stored.AcknowledgedIsStored(),
    rules_stored.ReadIsStored(),
    rules_stored.CommitsOnStoredIsr(),
    rules_stored.EntersCaughtUp(),
    rules_heartbeats.RunsOnceTold(),
    rules_heartbeats.RunsOnceCaughtUp(),
    rules_heartbeats.SessionLastsItsTime(),
    rules_heartbeats.FormerEpochRefused(),
    rules_heartbeats.OnlyActiveAccepts(),
    rules_records.SwitchCoversNewReplicas(),
    rules_records.UnregisteredHoldsNothing(),
    rules_records.NextInOrderLeads(),
    rules_metadata.VisibleIsCommitted(),
    rules_metadata.ControllersHoldTheState(),
    rules_metadata.SnapshotsHoldTheState(),
    rules_metadata.DeposedReverts(),
    rules_deleted.DeletedIsRemoved(),
    of_replicas(rules_restarted.RestartsCommitted()),
    of_replicas(rules_restarted.DropsNothingCommitted()),
    rules_created.LedFromTheFirst(),
    rules_created.NoticesNewPartitions(),
    rules_answers.OwesNoCommit(),
    rules_answers.UnregisteredAnswersNone(),
    rules_voters.FollowsNewVoters(),
    rules_failures.CarriesOn(),
    rules_beside.EpochsAreThoseOfBatches(),
    rules_beside.ProducersAreThoseOfBatches(),
    rules_failures.MeetsNoFault(),
)
