"""The administration of a schedule: each operation is a command to a client, and no answer is
awaited. Only the end of a broker is awaited that is removed.

Operations go to an administrator, one after another, changes of the quorum to a probe, and writes
to a producer of their own. These are not the clients of tests, which wait for their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar, final

import msgspec
from msgspec import Struct

from fencepost import (
    MS,
    ClientSession,
    Condition,
    EnvironmentFailed,
    Layout,
    Runtime,
    Signal,
    Slot,
    UsageError,
    kind_name,
    no_such,
    plain,
)
from fencepost_kafka.clients.commands import (
    AddVoter,
    AdminCommand,
    AdminOptions,
    AlterSettings,
    ClientOptions,
    CreateTopic,
    DeleteBroker,
    DeleteTopic,
    ElectPreferred,
    ProbeOptions,
    ProducerOptions,
    Reassign,
    RemoveVoter,
)
from fencepost_kafka.events import AdminCompleted, ProbeCompleted
from fencepost_kafka.faults.administration import OPERATIONS, OTHER_VOTERS, RATE
from fencepost_kafka.view import REMOVE_BROKER, KafkaView
from fencepost_kafka.vocabulary import Role

_ANSWERS = (AdminCompleted, ProbeCompleted)
LIMIT_MS = 5_000
"""How long an operation may take; it is not repeated."""
STOP_LIMIT_MS = 10_000
"""How long a broker that is removed may take to stop before it is killed."""


class _Create(Struct, forbid_unknown_fields=True):
    topic: str
    partitions: int
    replication: int


class _Write(Struct, forbid_unknown_fields=True):
    topic: str
    partitions: int
    count: int


class _Delete(Struct, forbid_unknown_fields=True):
    topic: str


class _Reassign(Struct, forbid_unknown_fields=True):
    topic: str
    partition: int
    replicas: tuple[int, ...]


class _Drain(Struct, forbid_unknown_fields=True):
    broker: int
    moves: tuple[tuple[str, int, tuple[int, ...]], ...]


class _Elect(Struct, forbid_unknown_fields=True):
    topic: str
    partitions: tuple[int, ...]


class _Alter(Struct, forbid_unknown_fields=True):
    topic: str
    config: Mapping[str, str]


class _Broker(Struct, forbid_unknown_fields=True):
    broker: int


class _Voter(Struct, forbid_unknown_fields=True):
    controller: int


A = TypeVar("A", bound=Struct)


@final
class Scheduled:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        start: Callable[[str, ClientOptions, bool], ClientSession],
        next_operation: Callable[[], str],
    ) -> None:
        """`start` starts a client of a kind, which may die; `next_operation` names a command."""
        self._runtime = runtime
        self._start = start
        self._next = next_operation
        self._sessions: dict[str, ClientSession] = {}
        self._asked: dict[str, tuple[str, str]] = {}
        """kind of client -> its process and its last command."""

    @property
    def administering(self) -> bool:
        """Whether a command has no answer yet, and the client that was asked lives."""
        view = self._runtime.view
        for process, operation in self._asked.values():
            last = [view.latest.get((process, kind_name(kind))) for kind in _ANSWERS]
            answered = {getattr(one.body, "operation", "") for one in last if one is not None}
            if operation not in answered and process in view.alive:
                return True
        return False

    def administer(self, operation: str, arguments: Mapping[str, object]) -> None:
        """See `Administers.administer`."""
        if operation == "write_topic":
            self._write(_read(operation, arguments, _Write))
            return
        if operation == "add_broker":
            self._add_broker(_read(operation, arguments, _Broker).broker)
            return
        if operation == REMOVE_BROKER and not self._stop(
            _read(operation, arguments, _Broker).broker
        ):
            return
        if operation in OTHER_VOTERS:
            self._change_voters(operation, _read(operation, arguments, _Voter).controller)
            return
        command = self._command(operation, arguments)
        self._tell("admin", AdminOptions(limit_ms=LIMIT_MS), command.operation, plain(command))

    def _command(self, operation: str, arguments: Mapping[str, object]) -> AdminCommand:
        name = self._next()
        match operation:
            case "create_topic":
                new = _read(operation, arguments, _Create)
                return CreateTopic(
                    operation=name,
                    topic=new.topic,
                    partitions=new.partitions,
                    replication=new.replication,
                )
            case "delete_topic":
                return DeleteTopic(operation=name, topic=_read(operation, arguments, _Delete).topic)
            case "reassign":
                move = _read(operation, arguments, _Reassign)
                moves = ((move.topic, move.partition, move.replicas),)
                return Reassign(operation=name, moves=moves)
            case "drain_broker":
                return Reassign(operation=name, moves=_read(operation, arguments, _Drain).moves)
            case "elect_preferred":
                elect = _read(operation, arguments, _Elect)
                return ElectPreferred(
                    operation=name, topic=elect.topic, partitions=elect.partitions
                )
            case "alter_settings":
                alter = _read(operation, arguments, _Alter)
                return AlterSettings(operation=name, topic=alter.topic, config=alter.config)
            case "delete_broker" | "remove_broker":
                return DeleteBroker(
                    operation=name, broker=_read(operation, arguments, _Broker).broker
                )
        raise no_such("operation", operation, OPERATIONS)

    def _write(self, wanted: _Write) -> None:
        options = ProducerOptions(
            partitions=tuple((wanted.topic, n) for n in range(wanted.partitions)),
            count=wanted.count,
            rate=RATE,
        )
        self._start("producer", options, True)

    def _add_broker(self, broker: int) -> None:
        """Starts the spare with that id, or the broker that was removed, unless it runs."""
        slot, view = self._slot(broker), self._runtime.view
        if not slot.spare and not view.of(KafkaView).has_left(slot.name, view):
            raise UsageError(f"no spare has the id {broker}, and it was not removed")
        if self._runtime.living(slot) is None:
            self._runtime.start(slot)

    def _stop(self, broker: int) -> bool:
        """Has the process of a broker end, unless the broker has a replica; returns whether none
        runs. One that does not end in time is killed, as a service manager does."""
        runtime, slot = self._runtime, self._slot(broker)
        process = runtime.living(slot)
        if process is None:
            return True
        if runtime.view.of(KafkaView).replicas_of(broker):
            return False
        ended = Condition(f"{process.name} to end", lambda view: process.name not in view.alive)
        for signal in (Signal.TERM, Signal.KILL):
            runtime.signal(process, signal)
            if runtime.advance(ended, runtime.now_ns() + STOP_LIMIT_MS * MS) is not None:
                return True
        raise EnvironmentFailed(f"{process.name} did not end {STOP_LIMIT_MS} ms after SIGKILL")

    def _slot(self, broker: int) -> Slot:
        slots = self._runtime.layout.of(Role.BROKER, spares=True)
        found = next((one for one in slots if one.node_id == broker), None)
        if found is None:
            raise UsageError(f"no broker has the id {broker}")
        return found

    def _change_voters(self, operation: str, controller: int) -> None:
        """Asks a broker that runs."""
        layout, view = self._runtime.layout, self._runtime.view
        brokers = layout.of(Role.BROKER)
        broker = next((b for b in brokers if view.newest.get(b.name, "") in view.alive), brokers[0])
        name = self._next()
        command: AddVoter | RemoveVoter = RemoveVoter(
            operation=name, slot=broker.name, broker=broker.node_id, node=controller
        )
        if operation == "add_voter":
            address = _address(layout, controller)
            command = AddVoter(
                operation=name,
                slot=broker.name,
                broker=broker.node_id,
                node=controller,
                host=address[0],
                port=address[1],
            )
        self._tell("probe", ProbeOptions(), name, plain(command))

    def _tell(
        self, kind: str, options: ClientOptions, operation: str, command: Mapping[str, object]
    ) -> None:
        """Sends a command to the client of that kind; one that died is replaced."""
        session = self._sessions.get(kind)
        view = self._runtime.view
        if session is None or session.process not in view.alive:
            session = self._sessions[kind] = self._start(kind, options, True)
        self._asked[kind] = session.process, operation
        session.tell(command)


def _address(layout: Layout, controller: int) -> tuple[str, int]:
    """The slot of a controller, and the port that other controllers dial."""
    slots = layout.of(Role.CONTROLLER, spares=True)
    mine = next((slot.name for slot in slots if slot.id_as(Role.CONTROLLER) == controller), "")
    others = {slot.name for slot in slots} - {mine}
    for link in layout.links:
        if link.target == mine and link.source in others:
            return mine, link.port
    raise UsageError(f"no slot has the controller {controller}")


def _read(operation: str, arguments: Mapping[str, object], kind: type[A]) -> A:
    """The arguments; raises UsageError for others than the operation has."""
    try:
        return msgspec.convert(dict(arguments), kind)
    except msgspec.ValidationError as wrong:
        raise UsageError(f"{operation} has other arguments: {wrong}") from wrong
