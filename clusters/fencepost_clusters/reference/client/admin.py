"""An administrator and a probe: one command after another, each with the outcome that its answer
proves. The administrator asks any broker; the probe asks exactly the broker in its command."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from fencepost import MS, ClientFailed
from fencepost_clusters.reference.client import outcomes
from fencepost_clusters.reference.client.requests import AdminRequest, ask_admin, count_records
from fencepost_clusters.reference.client.routes import CHANNEL, Routes
from fencepost_clusters.reference.core.node.effects import Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import (
    AddVoter,
    AdminCommand,
    AdminCompleted,
    AdminOptions,
    CallOutcome,
    ClientCommand,
    ProbeBytes,
    ProbeCommand,
    ProbeCompleted,
    ProbeController,
    ProbeFetch,
    ProbeMetadata,
    ProbeMetrics,
    ProbeOutcome,
    ProbeProduce,
    RemoveVoter,
)

MOST_BYTES: Final = 1 << 20
PROBE_WAIT_MS: Final = 100
AGAIN_NS: Final = 100 * MS

CommandedProbe = (
    ProbeFetch | ProbeProduce | ProbeMetadata | ProbeController | ProbeBytes | AddVoter
    | RemoveVoter
)  # fmt: skip
"""The probes that go through a listener."""


def refuse(out: Outbox, command: ClientCommand) -> None:
    """Records that a command is not for this kind of client."""
    out.note(ClientFailed(error=f"{type(command).__name__} is not for this client", fatal=False))


@dataclass(slots=True)
class _Doing:
    command: AdminCommand
    asked: AdminRequest
    limit_ns: int
    call: int | None = None
    again_ns: int = 0


class AdminClient:
    """See the module."""

    def __init__(self, options: AdminOptions, routes: Routes, out: Outbox, now: Instant) -> None:
        self.done = False
        self._limit_ms = options.limit_ms
        self._routes = routes
        self._out = out
        self._todo: deque[ClientCommand] = deque()
        self._doing: _Doing | None = None
        self._stopping = False

    def take(self, command: ClientCommand) -> None:
        """Queues a command behind the earlier ones."""
        self._todo.append(command)

    def stop(self, now: Instant) -> None:
        """Carries out the queued commands, and accepts no further ones."""
        self._stopping = True

    def deadline_ns(self) -> int | None:
        """When a Tick is wanted next."""
        one = self._doing
        if one is None:
            return 0 if self._todo or self._stopping else None
        return one.limit_ns if one.call is not None else min(one.again_ns, one.limit_ns)

    def tick(self, now: Instant) -> None:
        """Begins the next command, asks again, or gives up."""
        at = now.monotonic_ns
        while self._doing is None and self._todo:
            command = self._todo.popleft()
            if isinstance(command, AdminCommand):
                asked = ask_admin(command, self._limit_ms)
                self._doing = _Doing(command, asked, at + self._limit_ms * MS)
            else:
                refuse(self._out, command)
        one = self._doing
        if one is None:
            self.done = self._stopping
        elif at >= one.limit_ns:
            self._complete(one, "unknown", "_TIMED_OUT")
            self.tick(now)
        elif one.call is None and at >= one.again_ns:
            left_ms = max(1, (one.limit_ns - at) // MS)
            address = self._routes.any_broker()
            one.call = self._out.call(address, CHANNEL, one.asked.request, left_ms)

    def answered(self, call_id: int, answer: m.Response, now: Instant) -> bool:
        """Takes an answer in; False if the call was not ours."""
        one = self._doing
        if one is None or one.call != call_id:
            return False
        code = one.asked.error_in(answer)
        details = () if code else one.asked.details_in(answer)
        name = outcomes.name_of(code) if code else ""
        self._complete(one, outcomes.of_admin(code), name, details)
        self.tick(now)
        return True

    def failed(self, call_id: int, now: Instant, reason: str) -> bool:
        """A call got no answer; False if it was not ours.

        A call that was never sent, or that changes nothing, is repeated at another broker.
        """
        one = self._doing
        if one is None or one.call != call_id:
            return False
        # Where no connection was made, no request was sent, so it has had no effect.
        if one.asked.reads_only or reason == "connection refused":
            one.call, one.again_ns = None, now.monotonic_ns + AGAIN_NS
        else:
            # It may have been carried out: to repeat it could do so twice.
            self._complete(one, "unknown", "_TRANSPORT")
            self.tick(now)
        return True

    def _complete(
        self, one: _Doing, outcome: CallOutcome, error: str, details: tuple[str, ...] = ()
    ) -> None:
        asked = one.asked
        self._out.note(
            AdminCompleted(
                operation=one.command.operation,
                api=asked.api,
                subject=asked.subject,
                outcome=outcome,
                error=error,
                details=details,
            )
        )
        self._doing = None


class ProbeClient:
    """See the module."""

    def __init__(self, port: int, out: Outbox) -> None:
        self.done = False
        self._port = port
        self._out = out
        self._todo: deque[ClientCommand] = deque()
        self._doing: tuple[int, CommandedProbe, int] | None = None
        self._stopping = False

    def take(self, command: ClientCommand) -> None:
        """Queues a command behind the earlier ones."""
        self._todo.append(command)

    def stop(self, now: Instant) -> None:
        """Carries out the queued commands, and accepts no further ones."""
        self._stopping = True

    def deadline_ns(self) -> int | None:
        """When a Tick is wanted next."""
        return 0 if self._doing is None and (self._todo or self._stopping) else None

    def tick(self, now: Instant) -> None:
        """Begins the next command."""
        while self._doing is None and self._todo:
            command = self._todo.popleft()
            if isinstance(command, ProbeCommand) and not isinstance(command, ProbeMetrics):
                port = (
                    command.port
                    if isinstance(command, ProbeController | ProbeBytes)
                    else self._port
                )
                address = (command.slot, port)
                # A channel of its own, so that the connection is a new one.
                channel = command.operation
                request = _probe(command, now)
                call = self._out.call(address, channel, request, command.limit_ms)
                self._doing = (call, command, now.monotonic_ns)
            else:
                refuse(self._out, command)
        if self._doing is None:
            self.done = self._stopping

    def answered(self, call_id: int, answer: m.Response, now: Instant) -> bool:
        """Takes an answer in; False if the call was not ours."""
        if self._doing is None or self._doing[0] != call_id:
            return False
        outcome: ProbeOutcome = "answered"
        error, records, base = "", 0, -1
        brokers: tuple[int, ...] = ()
        code, raw = 0, ""
        match answer:
            case m.RawFrame():
                raw = answer.frame.hex()
            case m.FetchResponse():
                part = answer.responses[0].partitions[0] if answer.responses else None
                code = answer.error_code or (part.error_code if part is not None else 0)
                if part is not None and isinstance(part.records, bytes):
                    records = count_records(part.records)
            case m.ProduceResponse():
                stored = answer.responses[0].partition_responses[0]
                code, base = stored.error_code, stored.base_offset
            case m.MetadataResponse():
                code = next((t.error_code for t in answer.topics if t.error_code), 0)
                brokers = tuple(broker.node_id for broker in answer.brokers)
            case m.CreateTopicsResponse():
                code = answer.topics[0].error_code
            case a.AddRaftVoterResponse() | a.RemoveRaftVoterResponse():
                code = answer.error_code
            case _:
                raise AssertionError(f"{answer!r} answers no probe")
        if code:
            outcome, error, records, base = "refused", Error(code).name, 0, -1
            brokers = ()
        self._complete(outcome, error, records, base, brokers, answer=raw)
        self.tick(now)
        return True

    def failed(self, call_id: int, now: Instant, reason: str) -> bool:
        """A call got no answer; False if it was not ours."""
        if self._doing is None or self._doing[0] != call_id:
            return False
        timed_out = reason == "timed out"
        self._complete("timeout" if timed_out else "closed", "" if timed_out else reason, 0, -1)
        self.tick(now)
        return True

    def _complete(
        self,
        outcome: ProbeOutcome,
        error: str,
        records: int,
        base: int,
        brokers: tuple[int, ...] = (),
        *,
        answer: str = "",
    ) -> None:
        assert self._doing is not None
        _, command, sent_ns = self._doing
        self._doing = None
        self._out.note(
            ProbeCompleted(
                operation=command.operation,
                api=API.get(type(command), type(command).__name__.removeprefix("Probe")),
                broker=command.broker,
                slot=command.slot,
                topic=getattr(command, "topic", ""),
                partition=getattr(command, "partition", -1),
                outcome=outcome,
                error=error,
                records=records,
                base_offset=base,
                sent_at_ns=sent_ns,
                brokers=brokers,
                answer=answer,
                acks=getattr(command, "acks", -1),
                voter=getattr(command, "node", -1),
            )
        )


API = {ProbeController: "CreateTopics", AddVoter: "AddRaftVoter", RemoveVoter: "RemoveRaftVoter"}


def _probe(command: CommandedProbe, now: Instant) -> m.Request:
    match command:
        case ProbeBytes():
            return m.RawFrame(bytes.fromhex(command.frame))
        case ProbeFetch():
            part = m.FetchPartition(
                partition=command.partition,
                fetch_offset=command.offset,
                partition_max_bytes=MOST_BYTES,
            )
            topic = m.FetchTopic(partitions=(part,), topic=command.topic)
            return m.FetchRequest(
                max_wait=PROBE_WAIT_MS, min_bytes=1, max_bytes=MOST_BYTES, topics=(topic,)
            )
        case ProbeProduce():
            data = record_batch.build([command.operation.encode()], 0, -1, now.wall_ms)
            stored = m.PartitionProduceData(index=command.partition, records=data)
            produced = m.TopicProduceData(name=command.topic, partition_data=(stored,))
            return m.ProduceRequest(
                acks=command.acks, timeout=command.limit_ms, topic_data=(produced,)
            )
        case ProbeController():
            topics = (m.CreatableTopic(name=command.topic, num_partitions=1, replication_factor=1),)
            return m.CreateTopicsRequest(topics=topics, timeout=command.limit_ms)
        case AddVoter():
            listener = a.RaftVoterListener(name="CONTROLLER", host=command.host, port=command.port)
            return a.AddRaftVoterRequest(
                cluster_id=None,
                timeout=command.limit_ms,
                voter_id=command.node,
                listeners=(listener,),
            )
        case RemoveVoter():
            return a.RemoveRaftVoterRequest(cluster_id=None, voter_id=command.node)
        case ProbeMetadata():
            return m.MetadataRequest(topics=(m.MetadataRequestTopic(name=command.topic),))
