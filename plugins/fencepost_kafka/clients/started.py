"""Producers and consumers that were started: commands to them, and conditions about them."""

from __future__ import annotations

from typing import final

from fencepost import ClientSession, Condition, Runtime, View, plain
from fencepost_kafka.clients.commands import Seek
from fencepost_kafka.events import ProduceCompleted
from fencepost_kafka.view import KafkaView


@final
class Writes:
    """A producer that was started, and the outcomes of its messages."""

    def __init__(self, runtime: Runtime, session: ClientSession, count: int) -> None:
        self._runtime = runtime
        self._session = session
        self._count = count

    @property
    def process(self) -> str:
        """The name of the producer's process."""
        return self._session.process

    def stop(self) -> None:
        """Asks the producer to send no more, and to wait for the reports of its messages."""
        self._session.stop()

    def goes_on(self, count: int) -> Condition:
        """It hands over that many messages more, with any outcomes."""
        due = self._runtime.view.of(KafkaView).invoked[self.process] + count
        return Condition(
            f"{count} more writes of {self.process}",
            lambda view: view.of(KafkaView).invoked[self.process] >= due,
        )

    def acked_at_least(self, count: int) -> Condition:
        """That many writes were acknowledged."""
        return Condition(
            f"{count} acknowledged writes of {self.process}",
            lambda view: view.of(KafkaView).completed[self.process, "ok"] >= count,
        )

    @property
    def settled(self) -> Condition:
        """The producer sends no more, and every write has an outcome, or the producer died."""

        def holds(view: View) -> bool:
            done = sum(
                view.of(KafkaView).completed[self.process, o] for o in ("ok", "failed", "unknown")
            )
            return self.process not in view.alive or 0 < self._count <= done

        return Condition(f"the writes of {self.process} to have outcomes", holds)

    @property
    def acked(self) -> frozenset[str]:
        """The operations acknowledged so far."""
        return frozenset(
            body.operation
            for event in self._runtime.events()
            if event.process == self.process
            and isinstance(body := event.body, ProduceCompleted)
            and body.outcome == "ok"
        )


@final
class Reads:
    """A consumer that was started."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    @property
    def process(self) -> str:
        """The name of the consumer's process."""
        return self._session.process

    def stop(self) -> None:
        """Asks the consumer to end."""
        self._session.stop()

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continues from that offset (-2: the beginning)."""
        self._session.tell(plain(Seek(topic=topic, partition=partition, offset=offset)))

    def polled_at_least(self, count: int) -> Condition:
        """That many messages were returned to it."""
        return Condition(
            f"{count} messages to reach {self.process}",
            lambda view: view.of(KafkaView).polled[self.process] >= count,
        )
