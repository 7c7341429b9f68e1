"""The protections a defect can switch off, and the defects by name.

A guard in the core asks `protections.holds(name)`; nothing else knows about defects.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencepost import Defect, UsageError


@dataclass(frozen=True, slots=True)
class AllBut:
    """Every protection holds, but those that the named defects switch off."""

    off: frozenset[str] = frozenset()

    def holds(self, name: str) -> bool:
        """Whether this protection is on."""
        assert name in BY_PROTECTION, name
        return name not in self.off


_TABLE: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    # protection, defect, clauses, what the cluster does then
    ("one-vote-an-epoch", "votes-twice", ("QC-07",), "a controller votes twice in one epoch"),
    ("complete-log-wins", "elects-shorter-log", ("QC-28", "QC-07"),
     "a controller with a shorter log is voted for"),
    ("answer-after-commit", "answers-uncommitted", ("QC-08",),
     "the controller answers from uncommitted state"),
    ("revert-on-deposition", "keeps-uncommitted-state", ("QC-09",),
     "a deposed controller keeps state that was never committed"),
    ("lease-from-request", "lease-by-controller-clock", ("QC-13",),
     "the answered lease end is computed from the controller's clock"),
    ("controller-fences", "never-fences", ("QC-14",),
     "the controller leaves a silent broker unfenced"),
    ("unfence-by-controller", "unfences-itself", ("QC-16",), "a broker unfences itself"),
    ("lease-gates-clients", "serves-without-lease", ("QC-17",),
     "a broker that lost its lease goes on serving produce and fetch"),
    ("controllers-want-rights", "anybody-commands-controllers", ("QC-04",),
     "any client can issue controller operations"),
    ("one-space-of-ids", "admits-a-controllers-id", ("QC-03",),
     "a controller and a broker with one id are both admitted"),
    ("follow-learned-voters", "follows-bootstrap-only", ("QC-29",),
     "brokers follow only their bootstrap addresses"),
    ("full-lease-at-takeover", "fences-at-takeover", ("QC-31",),
     "a new active controller fences everyone it has not heard from"),
    ("shutdown-after-handover", "shutdown-while-leading", ("QC-18",),
     "shutdown is granted while the broker still leads"),
    ("newest-incarnation-wins", "loser-still-counts", ("QC-19", "QC-15"),
     "the fetches and heartbeats of the process that lost its id still count"),
    ("epoch-on-regain", "lease-under-old-epoch", ("QC-20",),
     "a lease is restored under the old broker epoch"),
    ("epoch-from-log", "reuses-broker-epochs", ("QC-21",),
     "a new active controller hands out a broker epoch that was used before"),
    ("only-active-renews", "deposed-controller-renews", ("QC-22",),
     "a deposed controller renews leases"),
    ("fenced-leaves-isr", "fenced-broker-keeps-leading", ("QC-30",),
     "a fenced broker keeps its leaderships"),
    ("newcomer-takes-id", "restart-waits-out-lease", ("QC-35",),
     "a restarted process waits out the old lease"),
    ("check-quorum", "isolated-controller-stays", ("QC-36",),
     "an isolated controller renews leases for good"),
    ("register-after-recovery", "registers-unrecovered", ("REG-02",),
     "a broker registers before its logs are recovered"),
    ("snapshot-of-a-copy", "snapshot-misses-changes", ("QC-11",),
     "a snapshot leaves out an entity changed while it was written"),
    ("one-snapshot-at-a-time", "two-snapshots-at-once", ("QC-12",),
     "two controllers snapshot at once"),
    ("metadata-kept-up", "keeps-stale-broker", ("QC-15",),
     "a broker far behind on metadata is kept active"),
    ("features-supported", "admits-unsupporting-broker", ("QC-15",),
     "a broker that does not support an enabled feature is admitted"),
    ("format-by-level", "writes-newer-format", ("QC-33",),
     "records are written in a format above the enabled level"),
    ("online-when-caught-up", "online-with-stale-metadata", ("REG-04",),
     "a broker goes Online with stale metadata"),
    ("register-fenced", "registers-unfenced", ("REG-03",),
     "a re-registered broker keeps its former Online state"),
    ("fenced-start", "starting-broker-serves", ("REG-05",),
     "a starting broker answers clients while fenced"),
    ("session-end-fences", "online-past-session", ("REG-06", "QC-14"),
     "a broker keeps Online after its session ran out"),
    ("metadata-leaves-out-fenced", "names-fenced-brokers", ("REG-07",),
     "clients are sent to fenced brokers"),
    ("stop-when-told", "stops-while-leading", ("REG-08",),
     "a stopping broker goes offline while it still leads partitions"),
    ("stop-in-time", "stops-never", ("REG-09",), "a stopping broker hangs for good"),
    ("ack-after-isr", "acks-before-followers", ("RP-04",),
     "acks=all is answered before the followers have the message"),
    ("append-at-end", "appends-past-end", ("RP-05",),
     "a follower appends at an offset that is not its log end"),
    ("elect-from-isr", "elects-outside-isr", ("RP-06",),
     "a replica outside the ISR is elected while an in-sync one lives"),
    ("read-below-watermark", "serves-uncommitted", ("RP-07",), "an uncommitted message is read"),
    ("drop-laggards", "dead-follower-blocks", ("RP-09",),
     "a dead follower blocks commits for good"),
    ("join-when-caught-up", "laggard-joins-isr", ("RP-10",),
     "a follower that lags is put back into the ISR"),
    ("truncate-by-epoch", "never-truncates", ("RP-15", "RP-05"),
     "a follower does not truncate at all"),
    ("truncate-to-confirmed", "truncates-to-checkpoint", ("RP-15",),
     "a follower truncates to its checkpointed high watermark, and is then elected"),
    ("only-leader-serves", "former-leader-writes", ("RP-18",), "a former leader accepts writes"),
    ("epoch-grows", "reuses-leader-epoch", ("RP-24", "QC-32"), "two leaders serve one epoch"),
    ("watermark-travels", "followers-never-learn", ("RP-27",),
     "followers never learn the high watermark"),
    ("stored-isr-counts", "commits-on-unstored-shrink", ("RP-32",),
     "a cut-off leader commits on an ISR shrink that was never stored"),
    ("current-isr-change", "applies-stale-isr-change", ("QC-32",), "a stale AlterIsr is applied"),
    ("dead-isr-leads-nobody", "elects-any-live-replica", ("RP-29", "RP-06"),
     "any live replica is elected once the ISR is dead"),
    ("stepping-down-fails-writes", "acks-on-stepping-down", ("RP-31",),
     "queued produces are acknowledged on stepping down"),
    ("restart-from-checkpoint", "restarts-from-log-end", ("RP-08",),
     "a restarted replica takes its log end offset as high watermark"),
    ("producers-from-log", "new-leader-forgets-producers", ("RP-12",),
     "an idempotent resend after failover is stored twice"),
    ("metadata-names-leader", "metadata-names-former-leader", ("RP-11",),
     "the client's resend never finds the new leader"),
    ("placement-spreads", "one-neighbour-holds-all", ("RP-01",),
     "the other replicas of one broker's partitions all land on one neighbour"),
    ("placed-on-live", "places-on-dead-broker", ("RP-28",), "a replica is placed on a dead broker"),
    ("heirs-in-replica-order", "elects-lowest-id", ("RP-02",),
     "the election always picks the lowest id"),
    ("preferred-leads", "never-goes-back", ("RP-21",),
     "leadership never goes back, and load piles up on one broker"),
    ("switch-when-caught-up", "switches-before-caught-up", ("RP-20", "RP-06"),
     "a reassignment switches over before the new replicas have caught up"),
    ("removed-leave-isr", "former-replica-stays-in-isr", ("RP-19",),
     "a broker that is no replica gets into the ISR"),
    ("adding-moves-little", "adding-moves-everything", ("RP-03",),
     "adding a broker moves every partition"),
    ("deleted-leaves-isr", "deleted-broker-stays-in-isr", ("QC-26",),
     "a deleted broker stays in an ISR"),
    ("strays-go", "deleted-topic-comes-back", ("RP-25",),
     "a broker that was down brings a deleted topic back"),
    ("flushed-after-sync", "flushed-before-sync", ("RP-26",),
     "the flushed offset is advanced before the sync"),
    ("lag-is-told", "lag-stays-zero", ("QC-25",), "MetadataLag stays 0 on a node that is behind"),
)  # fmt: skip

BY_PROTECTION = {protection: name for protection, name, _, _ in _TABLE}
_TOO_QUICK = "the disk of a run is recovered before the first heartbeat could leave"
_NO_POWER_LOST = "a process that is killed loses nothing that it wrote: that takes a loss of power"
_UNSEEN = {
    "registers-unrecovered": {"process": _TOO_QUICK, "docker": _TOO_QUICK},
    "flushed-before-sync": {"process": _NO_POWER_LOST, "docker": _NO_POWER_LOST},
}
DEFECTS = tuple(
    Defect(name, breaks, says, _UNSEEN.get(name, {})) for _, name, breaks, says in _TABLE
)


def switched_off(defects: tuple[str, ...]) -> AllBut:
    """The protections left when these defects are on; raises UsageError for an unknown one."""
    by_defect = {name: protection for protection, name, _, _ in _TABLE}
    for name in defects:
        if name not in by_defect:
            raise UsageError(f"no defect named {name!r}")
    return AllBut(frozenset(by_defect[name] for name in defects))
