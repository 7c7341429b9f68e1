"""Histories of a cluster of three controllers and three brokers, for the rules of availability: the
harness's events, committed metadata, and clients' writes to `orders-0`."""

from __future__ import annotations

import functools
from typing import Literal

from fencepost import (
    Administered,
    FaultHealed,
    FaultInjected,
    PhaseStarted,
    ProcessAsked,
    ProcessExited,
    ProcessSpawned,
)
from fencepost.testing import HistoryBuilder, Verdict, judge
from fencepost_kafka import (
    BoundsStated,
    BrokerCommitted,
    BrokerDeclared,
    ConsumerPositioned,
    ControllerBegan,
    ControllerElected,
    PartitionCommitted,
    Polled,
    ProbeCompleted,
    ProduceCompleted,
    ProduceInvoked,
    TopicCommitted,
    TopicMarked,
)
from fencepost_plugins import stopping
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in (*DECLARED.clauses, *stopping.fencepost_clauses())}
FENCED_MS, WRITABLE_MS, RECOVERED_MS = 8_000, 18_000, 20_000
STUCK_MS = WRITABLE_MS + 1_000
"""Longer than that bound."""
STATED = BoundsStated(
    fenced_ms=FENCED_MS, writable_ms=WRITABLE_MS, recovered_ms=RECOVERED_MS, least_in_sync=2
)
CONSUMER, OTHER = "clients/consumer-1#1", "clients/consumer-2#1"
HARNESS, CONTROLLER, PRODUCER = "harness", "controller-1#1", "clients/producer#1"


class Story:
    """A history in which records have growing offsets, and each process of a slot a number."""

    def __init__(
        self,
        *,
        stated: bool = True,
        controllers: int = 3,
        acting: bool = True,
        recorded: bool = True,
    ) -> None:
        self.h = HistoryBuilder(start_ms=100_000)
        self._offset = 0
        self._number: dict[str, int] = {}
        self._epoch = 0
        if stated:
            self.h.add(HARNESS, STATED)
        for number in range(1, controllers + 1):
            self.spawn(f"controller-{number}")
        if acting and controllers:
            self.elect(1)
        for number in (1, 2, 3):
            self.spawn(f"broker-{number}")
            if recorded:
                self.broker(number)
        self.partition(1)

    def after(self, ms: int) -> Story:
        self.h.after(ms)
        return self

    # ------------------------------------------------------------------------------- the harness

    def spawn(self, slot: str) -> None:
        number = self._number[slot] = self._number.get(slot, 0) + 1
        role = slot.partition("-")[0]
        node = int(slot.split("-")[1]) + {"controller": 100, "zookeeper": 200}.get(role, 0)
        started = f"{slot}#{number}"
        body = ProcessSpawned(started=started, slot=slot, role=role, node_id=node, pid=1)
        self.h.add(HARNESS, body)

    def number(self, slot: str) -> int:
        """That of the slot's newest process."""
        return self._number[slot]

    def die(self, slot: str) -> None:
        ended = f"{slot}#{self._number[slot]}"
        self.h.add(HARNESS, ProcessExited(ended=ended, exit_code=-9, signal=9, expected=True))

    def ask_to_end(self, slot: str, signal: str = "SIGTERM") -> None:
        process = f"{slot}#{self._number[slot]}"
        self.h.add(HARNESS, ProcessAsked(asked=process, signal=signal))

    def elect(self, controller: int) -> None:
        """A controller says that it acts now."""
        self._epoch += 1
        process = f"controller-{controller}#{self._number[f'controller-{controller}']}"
        self.h.add(process, ControllerElected(epoch=self._epoch, log_end=1, last_epoch=-1))

    def fault(
        self, fault_id: str, *targets: str, directions: tuple[str, ...] = (), ago_ms: int = 0
    ) -> None:
        body = FaultInjected(
            fault_id=fault_id,
            fault=fault_id.partition("-")[0],
            targets=targets,
            receipt=True,
            evidence="measured",
            began_at_ns=self.h.now_ns - ago_ms * 1_000_000,
            directions=directions,
        )
        self.h.add(HARNESS, body)

    def heal(self, fault_id: str, ago_ms: int = 0) -> None:
        began_ns = self.h.now_ns - ago_ms * 1_000_000
        body = FaultHealed(fault_id=fault_id, receipt=True, evidence="", began_at_ns=began_ns)
        self.h.add(HARNESS, body)

    def ask(self, operation: Literal["add_voter", "remove_voter"], controller: int) -> None:
        body = Administered(
            operation=operation, arguments="{}", targets=(f"controller-{controller}",)
        )
        self.h.add(HARNESS, body)

    def remove(self, broker: int) -> None:
        """An administrator removes a broker for good: it is asked to stop, and ends."""
        slot = f"broker-{broker}"
        arguments = f'{{"broker":{broker}}}'
        body = Administered(operation="remove_broker", arguments=arguments, targets=(slot,))
        self.h.add(HARNESS, body)
        self.h.add(HARNESS, ended(f"{slot}#{self._number[slot]}"))

    def accept(
        self, api: Literal["AddRaftVoter", "RemoveRaftVoter"], controller: int, *, error: str = ""
    ) -> None:
        """A client is answered that a change of voters was made, or refused."""
        body = ProbeCompleted(
            operation="op",
            api=api,
            broker=1,
            slot="broker-1",
            topic="",
            partition=-1,
            outcome="refused" if error else "answered",
            error=error,
            records=0,
            base_offset=-1,
            sent_at_ns=0,
            voter=100 + controller,
        )
        self.h.add("clients/probe#1", body)

    def phase(self, name: str) -> None:
        self.h.add(HARNESS, PhaseStarted(phase=name))

    # ------------------------------------------------------------------------------- the metadata

    def offset(self) -> int:
        self._offset += 1
        return self._offset

    def broker(self, number: int, *, fenced: bool = False, incarnation: str = "i") -> None:
        body = BrokerCommitted(
            offset=self.offset(),
            broker_id=number,
            broker_epoch=1,
            fenced=fenced,
            incarnation=incarnation,
        )
        self.h.add(CONTROLLER, body)

    def declare(self, number: int, new: Literal["Active", "Inactive"], epoch: int = 1) -> None:
        body = BrokerDeclared(
            broker_id=number,
            incarnation_id=1,
            old="Active",
            new=new,
            controller_epoch=epoch,
            reason="silent",
            version=5,
            silent_ms=3_000,
            timeout_ms=2_000,
        )
        self.h.add("broker-2#1", body)

    def partition(
        self,
        leader: int,
        isr: tuple[int, ...] = (1, 2, 3),
        *,
        replicas: tuple[int, ...] = (1, 2, 3),
        adding: tuple[int, ...] = (),
        eligible: tuple[int, ...] = (),
        topic: str = "orders",
    ) -> None:
        body = PartitionCommitted(
            offset=self.offset(),
            topic=topic,
            partition=0,
            leader=leader,
            leader_epoch=1,
            isr=isr,
            replicas=replicas,
            adding=adding,
            eligible=eligible,
        )
        self.h.add(CONTROLLER, body)

    def delete(self) -> None:
        body = TopicCommitted(offset=self.offset(), topic="orders", topic_id="t", deleted=True)
        self.h.add(CONTROLLER, body)

    def mark(self) -> None:
        body = TopicMarked(offset=self.offset(), topic="orders", topic_id="t")
        self.h.add(CONTROLLER, body)

    # --------------------------------------------------------------------------------- the clients

    def invoke(self, operation: str, acks: int = -1, client: str = PRODUCER) -> None:
        body = ProduceInvoked(operation=operation, topic="orders", partition=0, acks=acks)
        self.h.add(client, body)

    def complete(
        self,
        operation: str,
        outcome: Literal["ok", "failed", "unknown"] = "ok",
        *,
        error: str = "",
        acks: int = -1,
        client: str = PRODUCER,
    ) -> None:
        body = ProduceCompleted(
            operation=operation,
            topic="orders",
            partition=0,
            acks=acks,
            outcome=outcome,
            offset=1 if outcome == "ok" else -1,
            error=error,
        )
        self.h.add(client, body)

    def ack(self, offset: int, acks: int = -1, outcome: Literal["ok", "unknown"] = "ok") -> None:
        body = ProduceCompleted(
            operation=f"op-{offset}",
            topic="orders",
            partition=0,
            acks=acks,
            outcome=outcome,
            offset=offset,
            error="",
        )
        self.h.add(PRODUCER, body)

    def poll(self, *offsets: int, by: str = CONSUMER, final: bool = False) -> None:
        operations = tuple(f"op-{offset}" for offset in offsets)
        body = Polled(
            topic="orders", partition=0, offsets=offsets, operations=operations, final=final
        )
        self.h.add(by, body)

    def position(self, offset: int, by: str = CONSUMER) -> None:
        self.h.add(by, ConsumerPositioned(topic="orders", partition=0, offset=offset))

    def write(self, operation: str) -> None:
        self.invoke(operation)
        self.complete(operation)


def verdict(story: Story, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    judged = judge(story.h.events(), chosen, CLAUSES, story.h.end(complete), "quorum")
    return judged.verdicts[clause]


readable = functools.partial(verdict, clause="AVAIL-readable")
writable = functools.partial(verdict, clause="AVAIL-writable")
fenced = functools.partial(verdict, clause="AVAIL-fenced")
recovered = functools.partial(verdict, clause="AVAIL-recovered")
stopped = functools.partial(verdict, clause="AVAIL-stopped")


def ended(process: str) -> ProcessExited:
    """The end of a process, as the harness reports it."""
    return ProcessExited(ended=process, exit_code=0, signal=0, expected=True)


def began(broker: int) -> ControllerBegan:
    """The word of a broker that it is the controller, over ZooKeeper."""
    return ControllerBegan(epoch=1, broker_id=broker, first=True, heartbeat_timeout_ms=2_000)


def stuck(story: Story, ms: int = STUCK_MS) -> Story:
    """Clients write; the leader dies; then a write is open for so long."""
    story.write("first")
    story.die("broker-1")
    story.fault("kill-1", "broker-1#1")
    story.invoke("next")
    return story.after(ms)
