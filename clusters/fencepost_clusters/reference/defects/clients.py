"""Defects of producing and consuming."""

from __future__ import annotations

from dataclasses import replace

from fencepost import Defect
from fencepost_clusters.reference.core.log.entry import Entry
from fencepost_clusters.reference.core.replication.roles import Part
from fencepost_clusters.reference.policies import Policies, PolicyDefect
from fencepost_clusters.reference.wire.errors import Error


# A former leader follows, so it takes writes as long as producers go to it.
def _followers_too(part: Part) -> bool:
    return part in (Part.LEADER, Part.FOLLOWER)


def _former_leader_writes(p: Policies) -> Policies:
    return replace(p, replication=replace(p.replication, accepts_writes=_followers_too))


# Batches that the former leader stored are not recognised: a producer that got no answer from it
# sends its batch again, and the new leader stores it once more.
def _of_this_leader_only(window: tuple[Entry, ...], epoch_start: int) -> tuple[Entry, ...]:
    return tuple(one for one in window if one.base >= epoch_start)


def _new_leader_forgets_producers(p: Policies) -> Policies:
    return replace(p, replication=replace(p.replication, remembered_batches=_of_this_leader_only))


# The followers still fetch, and the high watermark still waits for them. Only the answer does not.
def _never_waits(acks: int) -> bool:
    return False


def _acks_before_followers(p: Policies) -> Policies:
    return replace(p, replication=replace(p.replication, waits_for_followers=_never_waits))


def _acks_on_stepping_down(p: Policies) -> Policies:
    return replace(p, replication=replace(p.replication, error_on_stepping_down=Error.NONE))


# Followers need all of the log anyway. Only what consumers get is decided here.
def _reads_all(high_watermark: int, log_end: int) -> int:
    return log_end


def _serves_uncommitted(p: Policies) -> Policies:
    return replace(p, replication=replace(p.replication, readable_end=_reads_all))


DEFECTS = (
    PolicyDefect(
        Defect("former-leader-writes", ("RP-18",), "a former leader accepts writes"),
        _former_leader_writes,
    ),
    PolicyDefect(
        Defect(
            "new-leader-forgets-producers",
            ("RP-12",),
            "an idempotent resend after failover is stored twice",
        ),
        _new_leader_forgets_producers,
    ),
    PolicyDefect(
        Defect(
            "acks-before-followers",
            ("RP-04",),
            "acks=all is answered before the followers have the message",
        ),
        _acks_before_followers,
    ),
    PolicyDefect(
        Defect(
            "acks-on-stepping-down", ("RP-31",), "queued produces are acknowledged on stepping down"
        ),
        _acks_on_stepping_down,
    ),
    PolicyDefect(
        Defect("serves-uncommitted", ("RP-07",), "an uncommitted message is read"),
        _serves_uncommitted,
    ),
)
