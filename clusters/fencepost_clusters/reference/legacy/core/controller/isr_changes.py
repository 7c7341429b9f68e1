"""IsrChange at the controller: it judges each partition, stores, and only then answers (HB-21)."""

from __future__ import annotations

from fencepost_clusters.reference.core.cluster.image import isr_change
from fencepost_clusters.reference.core.node.effects import Received, Reply
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.legacy.core.controller.store import Steps
from fencepost_clusters.reference.legacy.core.controller.term import Term
from fencepost_clusters.reference.legacy.core.policies import LegacyControllerPolicies
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import IsrChangeJudged


class Judged:
    """The outcome of an IsrChange: a top-level error, or an error for each partition in order."""

    def __init__(self, top: Error, known: int, epoch: int, active: bool) -> None:
        self.top = top
        self.known = known
        self.epoch = epoch
        self.active = active
        self.results: list[Error] = []
        self.records: list[r.Record] = []


def refused(asked: w.IsrChangeRequest) -> Judged:
    """The outcome at a node that is not the controller (HB-17)."""
    return Judged(Error.NOT_CONTROLLER, -1, -1, active=False)


def judge(
    term: Term, asked: w.IsrChangeRequest, policies: LegacyControllerPolicies, active: bool
) -> Judged:
    """Judges a request without any effect."""
    known = term.brokers.get(asked.broker_id)
    epoch = -1 if known is None else known.incarnation
    judged = Judged(Error.NONE, epoch, term.epoch, active)
    if not policies.may_change_isrs(asked.incarnation_id, epoch):
        judged.top = Error.INVALID_INCARNATION_ID
        return judged
    image = term.store.image
    for topic in asked.topics:
        for wanted in topic.partitions:
            one = image.partition(topic.topic_name, wanted.partition_index)
            if one is None:
                judged.results.append(Error.UNKNOWN_TOPIC_OR_PARTITION)
            elif not policies.leads(one, asked.broker_id, wanted.leader_epoch):
                judged.results.append(Error.NOT_LEADER_OR_FOLLOWER)
            elif not policies.is_valid_isr(one, wanted.isr_nodes, image.live()):
                judged.results.append(Error.INVALID_REQUEST)
            else:
                judged.results.append(Error.NONE)
                # In the order of the replicas, so that one set of members has one content.
                isr = tuple(b for b in one.replicas if b in wanted.isr_nodes)
                if isr != one.isr:
                    # The leader keeps its leader epoch, and learns the ISR by this answer.
                    judged.records.append(isr_change(one, isr, one.leader, one.leader_epoch))
    return judged


def job(
    term: Term,
    received: Received,
    asked: w.IsrChangeRequest,
    *,
    policies: LegacyControllerPolicies,
    out: Outbox,
    active: bool,
) -> Steps:
    """The job that judges, stores, and answers a request."""
    cause = out.cause

    def reply(judged: Judged) -> None:
        with out.caused_by(cause):
            answer(out, received, asked, judged)

    newest: list[Judged] = []

    def decide() -> list[r.Record]:
        newest.append(judge(term, asked, policies, active))
        return newest[-1].records

    if policies.answers_before_stored():
        reply(judge(term, asked, policies, active))
    # `decide` judges anew if a znode has changed; `newest[-1]` is the judgement that was stored.
    changed = yield from term.store.carry_out(decide)
    if not changed and Error.NONE in newest[-1].results:
        # Nothing had to be stored. Only the current controller knows that this ISR is stored.
        yield from term.store.confirm()
    if not policies.answers_before_stored():
        # If the term has ended meanwhile, another controller may have changed it again (HB-17).
        reply(refused(asked) if term.store.over else newest[-1])
    term.announcer.tell(changed)


def answer(out: Outbox, received: Received, asked: w.IsrChangeRequest, judged: Judged) -> None:
    """Records the outcome, and answers."""
    wanted = [(t.topic_name, one) for t in asked.topics for one in t.partitions]
    listed = wanted if judged.top is Error.NONE else []
    out.note(
        IsrChangeJudged(
            client=received.client,
            broker_id=asked.broker_id,
            incarnation_id=asked.incarnation_id,
            known=judged.known,
            error=judged.top.name,
            partitions=tuple(f"{name}-{one.partition_index}" for name, one in listed),
            isrs=tuple(",".join(map(str, one.isr_nodes)) for _, one in listed),
            leader_epochs=tuple(one.leader_epoch for _, one in listed),
            results=tuple(error.name for error in judged.results),
            controller_epoch=judged.epoch,
            active=judged.active,
        )
    )
    response = w.IsrChangeResponse(
        top_level_error_code=judged.top,
        results=tuple(w.IsrChangeResult(error_code=error) for error in judged.results),
    )
    out.add(Reply(received.request_id, response))
