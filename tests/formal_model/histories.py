"""Behaviours of the model as histories: what the reference cluster's nodes would have written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from fencepost import (
    MS,
    FaultHealed,
    FaultInjected,
    ProcessExited,
    ProcessSpawned,
)
from fencepost.testing import HistoryBuilder
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    ConsumerPositioned,
    FetchServed,
    FollowerFetched,
    FollowingStarted,
    HighWatermarkAdvanced,
    IsrChangeAnswered,
    IsrChangeAsked,
    LeadershipEnded,
    LeadershipStarted,
    LeaseGranted,
    LogAppended,
    LogTruncated,
    PartitionCommitted,
    Polled,
    ProduceAnswered,
    ProduceCompleted,
    ProduceInvoked,
    ReplicaCheckpointed,
    TopicCommitted,
)
from formal_model.behaviours import Behaviour, Words

TOPIC, PARTITION = "orders", 0
AT: Mapping[str, Any] = {"topic": TOPIC, "partition": PARTITION}
BROKERS = (1, 2, 3)
CONTROLLER, PRODUCER, CONSUMER = "controller-1#1", "clients/producer#1", "clients/consumer#1"
TOPIC_AT = 7
"""The offset of the topic's record; before it, three brokers are registered, and become active."""
LAG_NS = 30_000_000_000
"""How long a follower has not kept up when the leader wants to drop it."""
LEASE_MS = 3_600_000
"""Leases are long: the model's time is not that of the history."""
ACKS = {"all": -1, "one": 1}


def history(behaviour: Behaviour, step_ms: int = 10, settle_ms: int = 60_000) -> HistoryBuilder:
    """The history of a behaviour whose steps take so long, and after which so much time passes."""
    telling = _Telling()
    telling.begin()
    for step in behaviour.steps:
        for words in step.said:
            telling.tell(words)
        telling.h.after(step_ms)
    telling.h.after(settle_ms)
    return telling.h


class _Telling:
    """Turns the words of a behaviour into events."""

    def __init__(self) -> None:
        self.h = HistoryBuilder()
        self._process = dict.fromkeys(BROKERS, 1)
        """broker -> how many processes it has had."""
        self._registered = dict.fromkeys(BROKERS, 1)
        """broker -> which of them is registered."""
        self._of_record: dict[int, int] = {}
        """offset of a broker's record -> which of its processes that is about."""
        self._faults: dict[int, str] = {}
        """broker -> the fault that ended its process."""
        self._number = 0

    def begin(self) -> None:
        """What all behaviours begin with: the model's first state."""
        reg = list(BROKERS)
        for fenced in (True, False):
            for broker in BROKERS:
                at = broker if fenced else broker + len(BROKERS)
                reg[broker - 1] = at
                marks = [fenced] * len(BROKERS)
                state = {"kind": "broker", "about": broker, "reg": reg, "fenced": marks}
                self.tell({"k": "record", "by": 0, "at": at, "state": state})
                if not fenced:
                    self.tell({"k": "active", "b": broker, "reg": at})
        for process, role in (
            (CONTROLLER, "controller"),
            *((self.of(b), "broker") for b in BROKERS),
        ):
            self.h.add(
                process,
                TopicCommitted(
                    offset=TOPIC_AT, topic=TOPIC, topic_id="t", deleted=False, role=_role(role)
                ),
            )
        first = {"kind": "partition", "leader": 1, "epoch": 0, "isr": list(BROKERS)}
        for by in (0, *BROKERS):
            self.tell({"k": "record", "by": by, "at": TOPIC_AT + 1, "state": first})
        self.tell({"k": "leads", "b": 1, "epoch": 0, "isr": list(BROKERS), "end": 0, "hw": 0})
        for broker in BROKERS[1:]:
            self.tell({"k": "follows", "b": broker, "leader": 1, "epoch": 0, "end": 0, "hw": 0})

    def of(self, broker: int, number: int | None = None) -> str:
        """A broker's process: the one that runs, or that of this number."""
        return f"broker-{broker}#{self._process[broker] if number is None else number}"

    def tell(self, words: Words) -> None:
        """Adds the events of what one node writes down."""
        _TOLD[words["k"]](self, words)

    # --------------------------------------------------------------------------------- the records

    def record(self, said: Words) -> None:
        by, at, state = said["by"], said["at"], said["state"]
        process, role = (self.of(by), "broker") if by else (CONTROLLER, "controller")
        if state["kind"] == "partition":
            body = PartitionCommitted(
                offset=at,
                **AT,
                leader=state["leader"] or -1,
                leader_epoch=state["epoch"],
                isr=tuple(state["isr"]),
                replicas=BROKERS,
                role=_role(role),
            )
            self.h.add(process, body)
            return
        broker = state["about"]
        epoch, fenced = state["reg"][broker - 1], state["fenced"][broker - 1]
        if not by:
            if epoch == at and fenced:
                self._registered[broker] = self._process[broker]
            self._of_record[at] = self._registered[broker]
        self.h.add(
            process,
            BrokerCommitted(
                offset=at,
                broker_id=broker,
                broker_epoch=epoch,
                fenced=fenced,
                incarnation=f"{broker}-{self._of_record[at]}",
                role=_role(role),
            ),
        )

    def active(self, said: Words) -> None:
        """The controller lets a broker be active, by its answer to a heartbeat."""
        broker, epoch = said["b"], said["reg"]
        lease = LeaseGranted(
            broker_id=broker,
            broker_epoch=epoch,
            next_state="ACTIVE",
            lease_start_ms=0,
            lease_end_ms=LEASE_MS,
            ends_at_ns=self.h.now_ns + LEASE_MS * MS,
            controller_epoch=1,
        )
        self.h.add(self.of(broker), lease)
        self._state(broker, epoch, "ACTIVE")

    def fenced(self, said: Words) -> None:
        self._state(said["b"], said["reg"], "FENCED")

    def _state(self, broker: int, epoch: int, new: Literal["ACTIVE", "FENCED"]) -> None:
        active = new == "ACTIVE"
        self.h.add(
            self.of(broker),
            BrokerStateChanged(
                broker_id=broker,
                old="FENCED" if active else "ACTIVE",
                new=new,
                broker_epoch=epoch,
                reason="unfenced" if active else "lease_expired",
            ),
        )

    def leads(self, said: Words) -> None:
        self.h.add(
            self.of(said["b"]),
            LeadershipStarted(
                **AT,
                leader_epoch=said["epoch"],
                isr=tuple(said["isr"]),
                log_start=0,
                log_end=said["end"],
                high_watermark=said["hw"],
            ),
        )

    def left(self, said: Words) -> None:
        body = LeadershipEnded(**AT, leader_epoch=said["epoch"], reason="metadata")
        self.h.add(self.of(said["b"]), body)

    def follows(self, said: Words) -> None:
        self.h.add(
            self.of(said["b"]),
            FollowingStarted(
                **AT,
                leader=said["leader"],
                leader_epoch=said["epoch"],
                log_end=said["end"],
                high_watermark=said["hw"],
            ),
        )

    # -------------------------------------------------------------------------------- the messages

    def sends(self, said: Words) -> None:
        body = ProduceInvoked(operation=f"v{said['v']}", **AT, acks=ACKS[said["acks"]])
        self.h.add(PRODUCER, body)

    def stores(self, said: Words) -> None:
        offset = said["offset"]
        self.h.add(
            self.of(said["b"]),
            LogAppended(
                **AT,
                base_offset=offset,
                log_end=offset + 1,
                expected_base=offset,
                batch_epoch=said["of"],
                leader_epoch=said["epoch"],
                as_leader=said["leads"],
                digest=f"{said['v']}.{said['of']}",
                producer_id=-1,
                base_sequence=-1,
            ),
        )

    def mark(self, said: Words) -> None:
        self.h.add(
            self.of(said["b"]),
            HighWatermarkAdvanced(
                **AT,
                high_watermark=said["hw"],
                log_end=said["end"],
                leader_epoch=said["epoch"],
                as_leader=said["leads"],
                isr=tuple(said["isr"]),
                counted=tuple(said["counted"]),
            ),
        )

    def cut(self, said: Words) -> None:
        self.h.add(
            self.of(said["b"]),
            LogTruncated(
                **AT,
                to_offset=said["to"],
                from_log_end=said["end"],
                high_watermark=said["hw"],
                leader_epoch=said["epoch"],
                reason=said["why"],
            ),
        )

    def counts(self, said: Words) -> None:
        follower = said["follower"]
        self.h.add(
            self.of(said["b"]),
            FollowerFetched(
                **AT,
                leader_epoch=said["epoch"],
                follower=follower,
                client=self.of(follower, said["inc"]),
                broker_epoch=said["reg"],
                offset=said["offset"],
            ),
        )

    def answer(self, said: Words) -> None:
        stored = said["error"] == "NONE"
        isr = said["isr"]
        self.h.add(
            self.of(said["b"]),
            ProduceAnswered(
                **AT,
                client=PRODUCER,
                acks=ACKS[said["acks"]],
                error=said["error"],
                base_offset=said["offset"] if stored else -1,
                log_end=said["offset"] + 1 if stored else -1,
                leader_epoch=said["epoch"],
                high_watermark=said["hw"],
                isr=tuple(isr),
                ends=tuple(said["ends"][one - 1] for one in isr),
                duplicate=False,
            ),
        )
        self.h.add(
            PRODUCER,
            ProduceCompleted(
                operation=f"v{said['v']}",
                **AT,
                acks=ACKS[said["acks"]],
                outcome="ok" if stored else "unknown",
                offset=said["offset"] if stored else -1,
                error="" if stored else said["error"],
            ),
        )

    def reads(self, said: Words) -> None:
        offsets = tuple(range(said["hw"]))
        self.h.add(CONSUMER, ConsumerPositioned(**AT, offset=0))
        self.h.add(
            self.of(said["b"]),
            FetchServed(
                **AT,
                client=CONSUMER,
                from_offset=0,
                to_offset=said["hw"],
                high_watermark=said["hw"],
                leader_epoch=said["epoch"],
                state="ACTIVE",
                log_end=said["end"],
            ),
        )
        operations = tuple(f"v{one}" for one in said["got"])
        self.h.add(CONSUMER, Polled(**AT, offsets=offsets, operations=operations, final=False))

    def flushes(self, said: Words) -> None:
        body = ReplicaCheckpointed(**AT, high_watermark=said["hw"], flushed=said["end"])
        self.h.add(self.of(said["b"]), body)

    # ------------------------------------------------------------------------------------- the ISR

    def asks(self, said: Words) -> None:
        new = said["new"]
        shrinks = not {*said["isr"]} <= {*new}
        self.h.add(
            self.of(said["b"]),
            IsrChangeAsked(
                **AT,
                leader_epoch=said["epoch"],
                broker_epoch=said["reg"],
                old_isr=tuple(said["isr"]),
                new_isr=tuple(new),
                ends=tuple(said["ends"][one - 1] for one in new),
                high_watermark=said["hw"],
                epoch_start=said["begin"],
                lag_ns=LAG_NS if shrinks else 0,
            ),
        )

    def answered(self, said: Words) -> None:
        self.h.add(
            self.of(said["b"]),
            IsrChangeAnswered(
                **AT,
                leader_epoch=said["epoch"],
                error=said["error"],
                isr=tuple(said["isr"]),
                granted_epoch=said["granted"],
            ),
        )

    # ------------------------------------------------------------------------------- the processes

    def killed(self, said: Words) -> None:
        self._ends(said["b"], "kill")

    def power(self, said: Words) -> None:
        self._ends(said["b"], "lose_power")

    def _ends(self, broker: int, fault: str) -> None:
        slot = f"broker-{broker}"
        self._number += 1
        self._faults[broker] = f"{fault}-{self._number}"
        effects = [f"ends {slot}"]
        if fault == "lose_power":
            effects.append(f"loses-unflushed {slot}")
        ended = self.of(broker)
        self.h.add("harness", ProcessExited(ended=ended, exit_code=-9, signal=9, expected=True))
        self.h.add(
            "harness",
            FaultInjected(
                fault_id=self._faults[broker],
                fault=fault,
                targets=(ended,),
                receipt=True,
                evidence="its process has ended",
                effects=tuple(effects),
            ),
        )

    def started(self, said: Words) -> None:
        broker = said["b"]
        self._process[broker] += 1
        self.h.add(
            "harness",
            ProcessSpawned(
                started=self.of(broker),
                slot=f"broker-{broker}",
                role="broker",
                node_id=broker,
                pid=0,
            ),
        )
        fault_id = self._faults.pop(broker)
        self.h.add("harness", FaultHealed(fault_id=fault_id, receipt=True, evidence="it runs"))


def _role(name: str) -> Literal["broker", "controller"]:
    return "controller" if name == "controller" else "broker"


_TOLD: Mapping[str, Callable[[_Telling, Words], None]] = {
    one.__name__: one
    for one in (
        _Telling.record,
        _Telling.active,
        _Telling.fenced,
        _Telling.leads,
        _Telling.left,
        _Telling.follows,
        _Telling.sends,
        _Telling.stores,
        _Telling.mark,
        _Telling.cut,
        _Telling.counts,
        _Telling.answer,
        _Telling.reads,
        _Telling.flushes,
        _Telling.asks,
        _Telling.answered,
        _Telling.killed,
        _Telling.power,
        _Telling.started,
    )
}
"""kind -> what makes events of it."""
