"""Heartbeats, each as one exchange: the request, its answer, and the lease taken from the answer.

The problem. A heartbeat is told three times: the broker tells that it sends the request
(`HeartbeatSent`), a controller that it answers it (`HeartbeatAnswered`), and the broker that it
takes the answer (`LeaseGranted`). A rule that reads only one of the three believes its speaker. A
broker that forged its own leases could serve for ever, and a controller that answered requests
which nobody sent never had to fence a dead broker.

The rules:

1. What joins the three is the process of the broker, and the start of the lease, which the broker
   reads from its wall clock for each request, and both sides repeat.
2. A word counts against its speaker. It counts for its speaker only where the other side told the
   same, or where the other side tells nothing of that kind at all: such a system is believed as far
   as it speaks. So it is remembered who ever told what (`asking`, `taking`).
3. What one side lacks proves nothing by itself. A request may be lost, an answer may be lost, late
   or for a process that is dead. Only the later one needs the earlier one: no grant without an
   answer, no answer without a request.
4. A request and an answer are recorded before they are sent, so an earlier one that is not in the
   history was not sent. Some nodes record an answer once it is sent, and may be killed in between:
   a rule that misses an answer judges at the end of the run, and only of a controller that wrote
   something later, or did not end.
5. A wall clock may be set back, and not every system has starts. So two requests may have one start
   (`reused`): then an answer or a grant may belong to either, and neither is held to one of them.

What is not done. An answer need not say to whose process it goes. Such an answer is joined to the
grant with its broker id and start, and never to a request. Nothing is judged here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from msgspec import Struct

from fencepost import Cause, Event
from fencepost_kafka import HeartbeatAnswered, HeartbeatSent, LeaseGranted

EXCHANGES_KEPT: Final = 64
"""How many exchanges of one process are kept: a message may be lost, and a run is long."""


@final
class Request(Struct, frozen=True):
    """A heartbeat as its broker sent it. It reached no controller before `at_ns`."""

    at: Cause
    at_ns: int


@final
class Answer(Struct, frozen=True):
    """A heartbeat's answer, as the controller `by` gave it."""

    at: Cause
    at_ns: int
    by: str
    body: HeartbeatAnswered

    @property
    def lets_be_active(self) -> bool:
        """Whether it lets the broker be active: by the word of a controller that was active."""
        return self.body.active and self.body.next_state == "ACTIVE"


@final
class Grant(Struct, frozen=True):
    """A lease that a broker took from an answer."""

    at: Cause
    at_ns: int
    controller_epoch: int


@dataclass(slots=True)
class Exchange:
    """One heartbeat of one process, as each of its two sides has told it so far."""

    request: Request | None = None
    answers: tuple[Answer, ...] = ()
    """In the order in which they were told. More than one only if a request came twice."""
    grant: Grant | None = None
    """The first lease that the broker took from an answer to it."""
    reused: bool = False
    """Whether a later request of the process has the same start. `request` is the first one."""

    def ends_by_ns(self, ends_ns: int, period_ns: int, *, by_answers: bool) -> int:
        """When a lease ends that was taken from it, by its broker's own clock at `ends_ns`: not
        later than a period after the request. If no request is told, and the controllers are asked,
        then not later than a period after the last answer."""
        if self.reused:
            return ends_ns
        if self.request is not None:
            return min(ends_ns, self.request.at_ns + period_ns)
        if self.answers and by_answers:
            return min(ends_ns, self.answers[-1].at_ns + period_ns)
        return ends_ns

    @property
    def answer(self) -> Answer | None:
        """The first answer."""
        return self.answers[0] if self.answers else None


@dataclass(slots=True)
class Exchanges:
    """The newest heartbeats of some processes, and who tells of heartbeats at all."""

    of: dict[str, dict[int, Exchange]] = field(default_factory=dict)
    """process of a broker -> start of the lease in milliseconds -> heartbeat."""
    asking: set[str] = field(default_factory=set)
    """The processes that told of a request."""
    answering: set[str] = field(default_factory=set)
    """The processes that told of an answer which accepts a heartbeat."""
    taking: set[str] = field(default_factory=set)
    """The processes that told of a grant."""
    forgotten: dict[str, tuple[int, int]] = field(default_factory=dict)
    """process of a broker -> the first and the last start of those heartbeats that are no longer
    kept, though no grant had ended them: what is still told of them is believed."""

    def sent(self, event: Event, body: HeartbeatSent) -> Exchange:
        """A broker sends a heartbeat."""
        self.asking.add(event.process)
        exchange = self._exchange(event.process, body.lease_start_ms)
        if exchange.request is None:
            exchange.request = Request(event.ref, event.at_ns)
        else:
            exchange.reused = True
        return exchange

    def answered(self, event: Event, body: HeartbeatAnswered) -> Exchange:
        """A controller accepts a heartbeat. Refusals are not kept: no lease is taken from one."""
        self.answering.add(event.process)
        client = body.client or _unnamed(body.broker_id)
        exchange = self._exchange(client, body.lease_start_ms)
        answer = Answer(event.ref, event.at_ns, event.process, body)
        # The first one, and those that came last: a controller may repeat itself for ever.
        exchange.answers = (*exchange.answers[:1], *exchange.answers[1:][-2:], answer)
        return exchange

    def granted(self, event: Event, body: LeaseGranted) -> Exchange:
        """A broker takes an answer."""
        self.taking.add(event.process)
        exchange = self._exchange(event.process, body.lease_start_ms)
        if exchange.grant is None:
            exchange.grant = Grant(event.ref, event.at_ns, body.controller_epoch)
        unnamed = self.of.get(_unnamed(body.broker_id), {}).get(body.lease_start_ms)
        if unnamed is not None and not exchange.answers:
            exchange.answers = unnamed.answers
        return exchange

    def _exchange(self, process: str, start_ms: int) -> Exchange:
        known = self.of.setdefault(process, {})
        found = known.get(start_ms)
        if found is None:
            while len(known) >= EXCHANGES_KEPT:
                self._forget(process, next(iter(known)))
            found = known[start_ms] = Exchange()
        return found

    def _forget(self, process: str, start_ms: int) -> None:
        exchange = self.of[process].pop(start_ms)
        # What its broker never sent would let a later one of these starts pass.
        if exchange.grant is None and (exchange.request or process not in self.asking):
            first, last = self.forgotten.get(process, (start_ms, start_ms))
            self.forgotten[process] = min(first, start_ms), max(last, start_ms)

    def is_forgotten(self, process: str, start_ms: int) -> bool:
        """Whether a heartbeat with this start may be one of those that are no longer kept."""
        first, last = self.forgotten.get(process, (0, -1))
        return first <= start_ms <= last

    def contradicts(self, exchange: Exchange, client: str, start_ms: int) -> bool:
        """Whether a process tells of its requests, and did not send this one, which was
        answered."""
        unsent = exchange.request is None and client in self.asking
        return unsent and not self.is_forgotten(client, start_ms)

    def is_borne_out(self, exchange: Exchange, client: str, start_ms: int) -> bool:
        """Whether a controller gave the lease that a process took, as far as is known by now."""
        return bool(exchange.answers) or self.is_forgotten(client, start_ms)

    def may_be_unnamed(self, broker_id: int) -> bool:
        """Whether a controller answered this broker id without naming the process."""
        return _unnamed(broker_id) in self.of


def _unnamed(broker_id: int) -> str:
    """Where answers are kept that name no process. No process has such a name."""
    return f"broker {broker_id}"
