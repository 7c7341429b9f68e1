"""The rules that judge Apache Kafka alone: of its own promises, and witnesses for those of the seed
documents (`Rule.planes`). Its promises are in `kraft.toml`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost import Rule
from fencepost_clusters.apache_kafka.rules import answers as rules_answers
from fencepost_clusters.apache_kafka.rules import beside_segments as rules_beside
from fencepost_clusters.apache_kafka.rules import created as rules_created
from fencepost_clusters.apache_kafka.rules import deleted as rules_deleted
from fencepost_clusters.apache_kafka.rules import epochs as rules_epochs
from fencepost_clusters.apache_kafka.rules import failures as rules_failures
from fencepost_clusters.apache_kafka.rules import fencings as rules_fencings
from fencepost_clusters.apache_kafka.rules import heartbeats as rules_heartbeats
from fencepost_clusters.apache_kafka.rules import holding as rules_holding
from fencepost_clusters.apache_kafka.rules import intruders as rules_intruders
from fencepost_clusters.apache_kafka.rules import metadata as rules_metadata
from fencepost_clusters.apache_kafka.rules import metrics as rules_metrics
from fencepost_clusters.apache_kafka.rules import records as rules_records
from fencepost_clusters.apache_kafka.rules import restarted as rules_restarted
from fencepost_clusters.apache_kafka.rules import serving as rules_serving
from fencepost_clusters.apache_kafka.rules import sessions as rules_sessions
from fencepost_clusters.apache_kafka.rules import stored as rules_stored
from fencepost_clusters.apache_kafka.rules import voters as rules_voters
from fencepost_kafka.judging.generations import of_replicas

RULES: Sequence[Rule[Any]] = (
    rules_sessions.HolderKeepsId(),
    rules_intruders.RefusedDoesNotRun(),
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
    rules_fencings.FencedAfterItsSession(),
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
