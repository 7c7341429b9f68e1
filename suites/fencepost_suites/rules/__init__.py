"""One rule a clause, one file a concept; `ALL` is what the plugin offers."""

from __future__ import annotations

from typing import Any

from fencepost import Rule
from fencepost_suites.rules import (
    clients,
    fencing,
    isr,
    leadership,
    leases,
    quorum,
    registration,
    replication,
    watermarks,
)

ALL: tuple[Rule[Any], ...] = (
    quorum.OneControllerAnEpoch(),
    quorum.VisibleOnceCommitted(),
    quorum.DeposedControllerReverts(),
    quorum.ChangesSurviveFailover(),
    leases.LeaseFromBrokersStart(),
    leases.LostLeaseIsFenced(),
    leases.OnlyActiveControllerAnswers(),
    leases.IsolatedControllerResigns(),
    registration.ActiveOnlyWhenTold(),
    registration.StatesMoveAsDrawn(),
    registration.EpochsGrow(),
    registration.RegistersFenced(),
    registration.RestartedProcessReclaimsId(),
    fencing.FencedBrokerServesNobody(),
    fencing.StartingBrokerServesNobody(),
    fencing.LoserOfIdCountsForNothing(),
    leadership.ShutdownAfterHandover(),
    leadership.FencedBrokerLosesLeaderships(),
    leadership.OnlyLeaderServes(),
    leadership.OneLeaderAnEpoch(),
    replication.AcknowledgedByAllInSync(),
    replication.ReplicasAgree(),
    replication.CommittedIsNeverLost(),
    replication.NewLeaderHasTheAcknowledged(),
    replication.FollowerTruncatesByEpoch(),
    watermarks.ReadsStayBelowWatermark(),
    watermarks.FollowersLearnWatermark(),
    watermarks.StoredIsrCounts(),
    isr.LaggardIsDropped(),
    isr.ReturnsOnlyCaughtUp(),
    clients.LostWrite(),
    clients.Unseen(),
    clients.InconsistentOffsets(),
    clients.Duplicate(),
    clients.NonmonotonicPoll(),
    clients.PollSkip(),
    clients.AbortedRead(),
)
