"""The known findings about Kafka: one file each, beside its run and its schedule.

The files without a `FINDING` answer what several findings ask in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost import KnownFinding
from fencepost_clusters.apache_kafka.findings import (
    bounce_unseen,
    cleared_leader_blocks_registration,
    cleared_leader_keeps_broker_out,
    config_clears_eligible_leaders,
    deleted_topic_keeps_settings,
    deposed_leader_lacks_epoch,
    deposed_leader_refuses,
    forgotten_isr_request,
    isr_begins_epoch,
    no_broker_epochs,
    no_check_quorum,
    no_heartbeat_no_fencing,
    no_pre_vote,
    refused_duplicate,
    refused_duplicate_counts,
    refused_duplicate_follows,
    removed_replica_stays_eligible,
    removed_voter_ends_leader,
    resigned_leader_acts,
    superseded_broker_leads,
    superseded_broker_stays_out,
)


def known_findings() -> Sequence[KnownFinding]:
    """All of them. If two explain a violation, the first one gets it."""
    return tuple(
        one.FINDING
        for one in (
            refused_duplicate,
            refused_duplicate_follows,
            forgotten_isr_request,
            no_heartbeat_no_fencing,
            superseded_broker_leads,
            superseded_broker_stays_out,
            no_broker_epochs,
            bounce_unseen,
            deposed_leader_refuses,
            deposed_leader_lacks_epoch,
            no_check_quorum,
            isr_begins_epoch,
            no_pre_vote,
            resigned_leader_acts,
            deleted_topic_keeps_settings,
            config_clears_eligible_leaders,
            removed_replica_stays_eligible,
            cleared_leader_blocks_registration,
            cleared_leader_keeps_broker_out,
            removed_voter_ends_leader,
            refused_duplicate_counts,
        )
    )
