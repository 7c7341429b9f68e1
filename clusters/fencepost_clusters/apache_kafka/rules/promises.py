"""The promises of Kafka that differ from the seed documents, as clauses of its own, with their
rules.

`KR-01` is about two processes with one id (in KIP-631 the newer one wins), and `KR-06` about the
consequence. `KR-02` is Kafka's fencing, which only the controllers do. `KR-03`, `KR-04` and `KR-05`
are promises of the seed documents, as far as Kafka gives evidence of them. `KR-07` and `KR-08` are
about its metrics. `KR-09`, `KR-10` and `KR-11` are about epochs, and tell releases apart. `KR-12`
to `KR-15` compare leaders with the logs of their followers, `KR-16` to `KR-20` are about heartbeats
as controllers answer them, `KR-21`, `KR-22` and `KR-29` about records, `KR-23` to `KR-25` and
`KR-30` about the metadata that nodes apply and hold, `KR-26` about disks, `KR-27` and
`KR-28` about answers, and `KR-31` and `KR-32` about replicas that restart or follow another leader.
`KR-33` and `KR-34` are about new partitions, `KR-35` is about new voters, `KR-36` about
failures of a controller, `KR-37` and `KR-38` about the files beside a replica's segments, and
`KR-39` about the faults that nodes report of themselves.
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
            "KR-03",
            "A broker that has applied metadata in which another broker is fenced leaves that "
            "one out of its answers to clients.",
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
            "KR-12",
            "A write with acks=all is acknowledged to a client only once every member of the ISR "
            "has stored it.",
        ),
        ("KR-13", "A consumer gets only what every member of the ISR has stored."),
        (
            "KR-14",
            "A leader raises its high watermark only to what every member of the stored ISR has "
            "stored: a smaller ISR counts once it is committed.",
        ),
        (
            "KR-15",
            "A replica enters an ISR only once it has stored all up to the high watermark and to "
            "the start of the leader's epoch.",
        ),
        (
            "KR-16",
            "A broker begins to run only once an active controller has answered a heartbeat of "
            "its epoch by unfencing it.",
        ),
        (
            "KR-17",
            "A broker is unfenced, and begins to run, only once it has applied the metadata up to "
            "its own registration.",
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
            "KR-20",
            "A controller that is not active answers heartbeats with NOT_CONTROLLER, and renews no "
            "session.",
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
        (
            "KR-23",
            "What a node applies of the metadata, and what an answer tells a broker of its ISR or "
            "its registration, is committed: it stays in the log, in its epoch.",
        ),
        ("KR-24", "Each controller holds in memory the state that the metadata log leads to."),
        (
            "KR-25",
            "A snapshot of the metadata has one record for each entity, and the state that the "
            "log up to its offset leads to; each node takes its own.",
        ),
        (
            "KR-26",
            "A broker that applies the deletion of a topic removes its logs, one that was down at "
            "the time included.",
        ),
        (
            "KR-27",
            "A leader that steps down answers the writes that it still owes, and none of them as "
            "acknowledged that it has not committed.",
        ),
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
            "KR-30",
            "An active controller that gives its leadership up reverts to the committed state, and "
            "drops from its log only what was never committed.",
        ),
        (
            "KR-31",
            "After a restart a replica's high watermark is one that a replica had before, and not "
            "above its log end.",
        ),
        (
            "KR-32",
            "A follower truncates its log to what the leader's log confirms by epochs, and never "
            "below its own high watermark.",
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
            "KR-35",
            "A broker keeps its session with a controller that became a voter at an address "
            "without which the broker was configured.",
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
