"""Defects of leases: when they start and end, and which broker gets one."""

from __future__ import annotations

from dataclasses import replace

from fencepost import Defect
from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.node.effects import NEVER_NS
from fencepost_clusters.reference.policies import Policies, PolicyDefect


# The broker compares the answered end with its own clock, in which the request has a time. By the
# controller's clock the lease is longer or shorter by the offset between the clocks, and longer by
# the time that the request took.
def _starts_at_receipt(requested_ms: int, now_ms: int) -> int:
    return now_ms


def _lease_by_controller_clock(p: Policies) -> Policies:
    leases = replace(p.controller.leases, lease_start_ms=_starts_at_receipt)
    return replace(p, controller=replace(p.controller, leases=leases))


def _never_checks(next_end_ns: int) -> int:
    return NEVER_NS


def _never_fences(p: Policies) -> Policies:
    leases = replace(p.controller.leases, next_check_ns=_never_checks)
    return replace(p, controller=replace(p.controller, leases=leases))


# So every lease has ended as the term begins, and only a broker whose heartbeat comes first is
# spared.
def _heard_a_lease_ago(now_ns: int, lease_ns: int) -> int:
    return now_ns - lease_ns


def _fences_at_takeover(p: Policies) -> Policies:
    leases = replace(p.controller.leases, heard_at_takeover_ns=_heard_a_lease_ago)
    return replace(p, controller=replace(p.controller, leases=leases))


# A controller that has never led answers as it should: only one that has led before, and was
# deposed, goes on with the committed image.
def _renews_after_its_term(ahead: Image | None, committed: Image, led_epoch: int) -> Image | None:
    return committed if ahead is None and led_epoch >= 0 else ahead


def _deposed_controller_renews(p: Policies) -> Policies:
    leases = replace(p.controller.leases, renewing_image=_renews_after_its_term)
    return replace(p, controller=replace(p.controller, leases=leases))


def _never_too_far_behind(committed: int, replayed: int, most: int) -> bool:
    return False


def _keeps_stale_broker(p: Policies) -> Policies:
    leases = replace(p.controller.leases, is_too_far_behind=_never_too_far_behind)
    return replace(p, controller=replace(p.controller, leases=leases))


def _always_caught_up(newest: int, replayed: int, registered_at: int, most: int) -> bool:
    return True


def _online_with_stale_metadata(p: Policies) -> Policies:
    leases = replace(p.controller.leases, has_caught_up_with_metadata=_always_caught_up)
    return replace(p, controller=replace(p.controller, leases=leases))


DEFECTS = (
    PolicyDefect(
        Defect(
            "lease-by-controller-clock",
            ("QC-13",),
            "the answered lease end is computed from the controller's clock",
        ),
        _lease_by_controller_clock,
    ),
    PolicyDefect(
        Defect("never-fences", ("QC-14",), "the controller leaves a silent broker unfenced"),
        _never_fences,
    ),
    PolicyDefect(
        Defect(
            "fences-at-takeover",
            ("QC-31",),
            "a new active controller fences every broker it has not heard from",
        ),
        _fences_at_takeover,
    ),
    PolicyDefect(
        Defect("deposed-controller-renews", ("QC-22",), "a deposed controller renews leases"),
        _deposed_controller_renews,
    ),
    PolicyDefect(
        Defect("keeps-stale-broker", ("QC-15",), "a broker far behind on metadata is kept active"),
        _keeps_stale_broker,
    ),
    PolicyDefect(
        Defect(
            "online-with-stale-metadata", ("REG-04",), "a broker goes Online with stale metadata"
        ),
        _online_with_stale_metadata,
    ),
)
