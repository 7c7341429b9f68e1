"""A controller and a broker in one process (QC-02): two cores, with ids and endpoints of their own.

From outside it is one core with one stream of events; the ids in an event name the node that it is
about. A request goes to the node that serves its listener, an answer to the node that made the
call; both nodes number their calls from one sequence. A call from one node to the other never
leaves the process. The broker keeps its copy of the metadata log in memory; the controller's copy
is on the disk.

See docs/decisions/46-combined.md.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from fencepost import NodeStopped
from fencepost_clusters.reference.core.node.effects import (
    Answered,
    Call,
    CallFailed,
    Close,
    Effect,
    Exit,
    Input,
    Instant,
    Note,
    Received,
    Recovered,
    Reply,
    ShutdownAsked,
    Tick,
)
from fencepost_clusters.reference.core.node.settings import CONTROLLER_LISTENER
from fencepost_clusters.reference.core.node.site import Site
from fencepost_clusters.reference.core.quorum.broker.broker import BrokerNode
from fencepost_clusters.reference.core.quorum.controller.controller import ControllerNode
from fencepost_clusters.reference.core.quorum.raft.metadata_log import LOG_NAME
from fencepost_kafka import MetricsReported

Node = ControllerNode | BrokerNode


class _Inner(Struct, frozen=True):
    """A call from one of the two to the other."""

    asker: Node
    call_id: int


class CombinedNode:
    """See the module: `handle(input, now) -> effects`, and `deadline_ns()` says when to Tick."""

    def __init__(self, site: Site, controller: ControllerNode, broker: BrokerNode) -> None:
        self.controller = controller
        self.broker = broker
        self._site = site
        # Address -> listener, of both nodes: a call to one of these stays within the process.
        self._listeners = {(site.name, port): name for name, port in site.ports.items()}
        # Call id -> the node that made it, for calls that leave the process.
        self._callers: dict[int, Node] = {}
        self._inner: dict[int, _Inner] = {}
        self._requests = 0
        # Steps that are to be made within this one, in order. It is empty between two inputs.
        self._todo: deque[tuple[Node, Input]] = deque()

    def deadline_ns(self) -> int | None:
        """The monotonic time of the next Tick."""
        times = (self.controller.deadline_ns(), self.broker.deadline_ns())
        return min((t for t in times if t is not None), default=None)

    def metrics_now(self) -> tuple[MetricsReported, ...]:
        """The newest metrics of both."""
        return (*self.controller.metrics_now(), *self.broker.metrics_now())

    def handle(self, what: Input, now: Instant) -> tuple[Effect, ...]:
        """One step of the node that the input is for, and the resulting steps of the other node."""
        match what:
            case Received():
                self._todo.append((self._serving(what.listener), what))
            case Answered() | CallFailed():
                self._todo.append((self._callers.pop(what.call_id), what))
            case Recovered() | ShutdownAsked():
                # The controller ends after the broker, since it may have to grant its shutdown.
                self._todo.append((self.broker, what))
            case Tick():
                self._todo.extend(((self.controller, what), (self.broker, what)))
        wanted: list[Effect] = []
        while self._todo:
            node, step = self._todo.popleft()
            for effect in node.handle(step, now):
                wanted.extend(self._outward(node, effect))
            if any(isinstance(effect, Exit) for effect in wanted):
                self._todo.clear()  # the process has ended
        return tuple(wanted)

    def _serving(self, listener: str) -> Node:
        return self.controller if listener == CONTROLLER_LISTENER else self.broker

    def _outward(self, node: Node, effect: Effect) -> tuple[Effect, ...]:
        """The effects that leave the process; a call to the other node is carried out as its
        step."""
        match effect:
            case Call():
                listener = self._listeners.get(effect.address)
                if listener is None:
                    self._callers[effect.call_id] = node
                    return (effect,)
                self._ask(node, effect, listener)
                return ()
            case Reply() | Close() if effect.request_id in self._inner:
                asked = self._inner.pop(effect.request_id)
                answer: Input = CallFailed(asked.call_id, "closed")
                if isinstance(effect, Reply) and effect.message is not None:
                    answer = Answered(asked.call_id, effect.message)
                self._todo.append((asked.asker, answer))
                return ()
            # The broker has ended in order. The controller steps down next, and its own Exit ends
            # the process.
            case Exit(code=0) if node is self.broker:
                self._todo.append((self.controller, ShutdownAsked()))
                return ()
            case Note(body=NodeStopped()) if node is self.broker:
                return ()  # the process ends with its controller
        stores_metadata = getattr(effect, "log", "") == LOG_NAME
        return () if stores_metadata and node is self.broker else (effect,)

    def _ask(self, node: Node, call: Call, listener: str) -> None:
        """Hands a call to the node that serves that listener; ids of inner requests are below 0."""
        self._requests -= 1
        self._inner[self._requests] = _Inner(node, call.call_id)
        received = Received(
            request_id=self._requests,
            listener=listener,
            client=self._site.process,
            correlation=call.call_id,
            message=call.message,
            principal=node.settings.rights.username,
        )
        self._todo.append((self._serving(listener), received))
