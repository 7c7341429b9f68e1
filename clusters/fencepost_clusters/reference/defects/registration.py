"""Defects of registration: the admission of processes, their ids and broker epochs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from uuid import UUID

from fencepost import Defect
from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.node.rights import Rights
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.controller.decisions import HeartbeatDecision
from fencepost_clusters.reference.core.replication.cluster_state import Broker
from fencepost_clusters.reference.policies import Policies, PolicyDefect
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error


def _admits_everyone(rights: Rights, principal: str) -> bool:
    return True


def _unauthorized_requests_accepted(p: Policies) -> Policies:
    registration = replace(p.controller.registration, is_admitted=_admits_everyone)
    return replace(p, controller=replace(p.controller, registration=registration))


def _no_clash(node: int, others: Collection[int]) -> bool:
    return False


def _admits_a_controllers_id(p: Policies) -> Policies:
    registration = replace(p.controller.registration, id_clashes=_no_clash)
    return replace(p, controller=replace(p.controller, registration=registration))


def _supports_all(image: Image, supported: Iterable[m.Feature]) -> str | None:
    return None


def _admits_unsupporting_broker(p: Policies) -> Policies:
    registration = replace(p.controller.registration, unsupported_feature=_supports_all)
    return replace(p, controller=replace(p.controller, registration=registration))


# A process that registers again before the lease of its former one has ended is refused until then.
def _waits_for_lease_end(holder_lease_ends_ns: int, now_ns: int) -> bool:
    return now_ns >= holder_lease_ends_ns


def _restart_waits_out_lease(p: Policies) -> Policies:
    registration = replace(p.controller.registration, may_take_id=_waits_for_lease_end)
    return replace(p, controller=replace(p.controller, registration=registration))


def _fenced_as_before(known: Broker | None) -> bool:
    return known is None or known.fenced


def _registers_unfenced(p: Policies) -> Policies:
    registration = replace(p.controller.registration, registers_fenced=_fenced_as_before)
    return replace(p, controller=replace(p.controller, registration=registration))


# Within a term the epochs still grow. Only the next term begins to count anew, so one of its epochs
# may have been another registration's.
def _epoch_in_term(next_offset: int, term_begin: int) -> int:
    return next_offset - term_begin


def _reuses_broker_epochs(p: Policies) -> Policies:
    registration = replace(p.controller.registration, new_broker_epoch=_epoch_in_term)
    return replace(p, controller=replace(p.controller, registration=registration))


# The lease is given back under an epoch that counted before the fencing: requests of that time,
# which are still under way, would be taken.
def _old_epoch(current: int, new: int) -> int:
    return current


def _lease_under_old_epoch(p: Policies) -> Policies:
    registration = replace(p.controller.registration, epoch_on_regain=_old_epoch)
    return replace(p, controller=replace(p.controller, registration=registration))


def _never_hands_over(image: Image, broker: int) -> bool:
    return False


def _shutdown_while_leading(p: Policies) -> Policies:
    registration = replace(p.controller.registration, must_hand_over=_never_hands_over)
    return replace(p, controller=replace(p.controller, registration=registration))


def _has_not_lost(image: Image, broker: int, incarnation: UUID | None) -> bool:
    return False


def _accepts_former(asked: m.BrokerHeartbeatRequest, lost: bool) -> HeartbeatDecision:
    epoch = asked.broker_epoch
    return HeartbeatDecision(Error.NONE, BrokerState.ACTIVE, epoch, renews=True)


def _any_epoch_is_current(claimed: int, current: int | None) -> bool:
    return True


def _no_epoch_is_past(claimed: int, known: int) -> bool:
    return False


def _keeps_id(registered: Broker | None, incarnation: UUID) -> bool:
    return False


def _loser_still_counts(p: Policies) -> Policies:
    """Replaces one decision in each node: that the newest process of an id wins."""
    registration = replace(
        p.controller.registration,
        has_lost_id=_has_not_lost,
        answer_to_former=_accepts_former,
        is_current_epoch=_any_epoch_is_current,
    )
    return replace(
        p,
        controller=replace(p.controller, registration=registration),
        broker=replace(p.broker, has_lost_id=_keeps_id),
        replication=replace(
            p.replication, is_past_epoch=_no_epoch_is_past, is_current_epoch=_any_epoch_is_current
        ),
    )


DEFECTS = (
    PolicyDefect(
        Defect(
            "unauthorized-requests-accepted",
            ("QC-04",),
            "any client can issue controller operations",
        ),
        _unauthorized_requests_accepted,
    ),
    PolicyDefect(
        Defect(
            "admits-a-controllers-id",
            ("QC-03",),
            "a controller and a broker with one id are both admitted",
        ),
        _admits_a_controllers_id,
    ),
    PolicyDefect(
        Defect(
            "admits-unsupporting-broker",
            ("QC-15",),
            "a broker that does not support an enabled feature is admitted",
        ),
        _admits_unsupporting_broker,
    ),
    PolicyDefect(
        Defect(
            "restart-waits-out-lease", ("QC-35",), "a restarted process waits out the old lease"
        ),
        _restart_waits_out_lease,
    ),
    PolicyDefect(
        Defect(
            "registers-unfenced",
            ("REG-03",),
            "a re-registered broker keeps its former Online state",
        ),
        _registers_unfenced,
    ),
    PolicyDefect(
        Defect(
            "reuses-broker-epochs",
            ("QC-21",),
            "a new active controller hands out a broker epoch that was used before",
        ),
        _reuses_broker_epochs,
    ),
    PolicyDefect(
        Defect(
            "lease-under-old-epoch", ("QC-20",), "a lease is restored under the old broker epoch"
        ),
        _lease_under_old_epoch,
    ),
    PolicyDefect(
        Defect(
            "shutdown-while-leading", ("QC-18",), "shutdown is granted while the broker still leads"
        ),
        _shutdown_while_leading,
    ),
    PolicyDefect(
        Defect(
            "loser-still-counts",
            ("QC-19", "QC-15"),
            "the fetches and heartbeats of the process that lost its id still count",
        ),
        _loser_still_counts,
    ),
)
