"""An administrator: one call after another, each with the outcome that its answer proves."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from fencepost import (
    AdminCommand,
    AdminCompleted,
    AdminOptions,
    CreateTopic,
    DeleteTopic,
    DescribeCluster,
    ListTopics,
)
from fencepost_plugins.kafka_clients import outcomes
from fencepost_plugins.kafka_clients.session import Session


@final
class Administering:
    """One administrator's work, until its commands end."""

    def __init__(self, session: Session, options: AdminOptions) -> None:
        self._session = session
        self._limit_s = options.limit_ms / 1000
        self._client = AdminClient(session.settings({}, options.settings.items()))

    def run(self) -> None:
        """Carries out every command as it comes."""
        for command in self._session.commands():
            if isinstance(command, AdminCommand):
                self._carry_out(command)
            else:
                self._session.refuse(command)

    def _carry_out(self, command: AdminCommand) -> None:
        limits = {"request_timeout": self._limit_s, "operation_timeout": self._limit_s}
        match command:
            case CreateTopic(topic=topic):
                new = NewTopic(
                    topic,
                    num_partitions=command.partitions,
                    replication_factor=command.replication,
                    config=dict(command.config),
                )
                self._complete(
                    command,
                    "create_topic",
                    topic,
                    lambda: self._wait(self._client.create_topics([new], **limits)[topic]),
                )
            case DeleteTopic(topic=topic):
                self._complete(
                    command,
                    "delete_topic",
                    topic,
                    lambda: self._wait(self._client.delete_topics([topic], **limits)[topic]),
                )
            case ListTopics():
                self._complete(
                    command,
                    "list_topics",
                    "",
                    lambda: self._client.list_topics(timeout=self._limit_s),
                )
            case DescribeCluster():
                self._complete(
                    command,
                    "describe_cluster",
                    "",
                    lambda: self._wait(
                        self._client.describe_cluster(request_timeout=self._limit_s)
                    ),
                )

    def _wait(self, future: Future[Any]) -> object:
        # The library keeps its own limit; the second one is for a library that does not.
        return future.result(self._limit_s + 5)

    def _complete(
        self, command: AdminCommand, api: str, subject: str, call: Callable[[], object]
    ) -> None:
        try:
            call()
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            self._record(command, api, subject, outcomes.of_admin(error), error.name())
        except TimeoutError:
            self._record(command, api, subject, "unknown", "_TIMED_OUT")
        else:
            self._record(command, api, subject, "ok", "")

    def _record(
        self, command: AdminCommand, api: str, subject: str, outcome: str, error: str
    ) -> None:
        self._session.recorder.record(
            AdminCompleted(command.operation, api, subject, outcome, error)
        )
