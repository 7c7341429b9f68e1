"""The script of the observer: it records each member's status when it changes."""

from __future__ import annotations

from fencepost_clusters.etcd.clients import messages
from fencepost_clusters.etcd.clients.messages import Response, StatusReply
from fencepost_clusters.etcd.clients.options import ObserverOptions
from fencepost_clusters.etcd.clients.outcomes import decoded
from fencepost_clusters.etcd.clients.script import Record, Script, Send, Wait, ask
from fencepost_clusters.etcd.events import MemberObserved


def observing(options: ObserverOptions, slots: tuple[str, ...]) -> Script:
    """Asks every member in turn. A change of the index alone is not worth an event."""
    last: dict[str, MemberObserved] = {}
    while True:
        for slot in slots:
            send = Send(slot, messages.status(), options.limit_ms, past_links=True)
            seen = observed(slot, (yield from ask(send)))
            before = last.get(slot)
            if before is None or _without_index(before) != _without_index(seen):
                yield Record(seen)
            last[slot] = seen
        yield Wait(options.every_ms)


def observed(slot: str, answer: Response) -> MemberObserved:
    """The event body of an answer."""
    reply = decoded(answer, StatusReply)
    if reply is None:
        return MemberObserved(slot=slot, answers=False)
    return MemberObserved(
        slot=slot,
        answers=True,
        member=f"{reply.header.member_id:x}",
        leader=f"{reply.leader:x}" if reply.leader else "",
        term=reply.raftTerm,
        index=reply.raftIndex,
    )


def _without_index(one: MemberObserved) -> tuple[bool, str, str, int]:
    return one.answers, one.member, one.leader, one.term
