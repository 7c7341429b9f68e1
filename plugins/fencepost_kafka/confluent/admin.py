"""An administrator: one call after another, each with the outcome that its answer proves."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, final

from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from fencepost_kafka.clients.commands import (
    AdminCommand,
    AdminOptions,
    AlterSettings,
    CreateTopic,
    DeleteTopic,
    DescribeCluster,
    ElectPreferred,
    ListTopics,
)
from fencepost_kafka.confluent import outcomes, raw_admin
from fencepost_kafka.confluent.raw_admin import RAW, Ended
from fencepost_kafka.confluent.session import Session
from fencepost_kafka.events import AdminCompleted
from fencepost_kafka.security import access_of

LibraryCommand = (
    CreateTopic | DeleteTopic | ListTopics | DescribeCluster | ElectPreferred | AlterSettings
)


@final
class AdminWork:
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
        if isinstance(command, RAW):
            config = self._session.config
            addresses = (broker.rpartition(":") for broker in config.bootstrap)
            brokers = [(host, int(port)) for host, _, port in addresses]
            ended = raw_admin.carry_out(
                command, brokers, config.process, self._limit_s, access_of(config)
            )
            self._record(command, ended)
        else:
            self._complete(command, *self._call(command))

    def _call(self, command: LibraryCommand) -> tuple[str, str, Callable[[], object]]:
        """A command's name, its subject, and the library's call for it."""
        limits = {"request_timeout": self._limit_s, "operation_timeout": self._limit_s}
        client, wait = self._client, self._wait
        match command:
            case CreateTopic(topic=topic):
                new = NewTopic(
                    topic,
                    num_partitions=command.partitions,
                    replication_factor=command.replication,
                    config=dict(command.config),
                )
                create = client.create_topics
                return "create_topic", topic, lambda: wait(create([new], **limits)[topic])
            case DeleteTopic(topic=topic):
                delete = client.delete_topics
                return "delete_topic", topic, lambda: wait(delete([topic], **limits)[topic])
            case ListTopics():
                return "list_topics", "", lambda: client.list_topics(timeout=self._limit_s)
            case DescribeCluster():
                describe = client.describe_cluster
                limit_s = self._limit_s
                return "describe_cluster", "", lambda: wait(describe(request_timeout=limit_s))
            case ElectPreferred(topic=topic):
                places = [TopicPartition(topic, number) for number in command.partitions]
                # Keyword arguments crash this call of confluent-kafka 2.16.
                elect, kind = client.elect_leaders, ElectionType.PREFERRED
                return "elect_preferred", topic, lambda: _elected(wait(elect(kind, places)))
            case AlterSettings(topic=topic):
                entries = [
                    ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                    for name, value in command.config.items()
                ]
                about = ConfigResource(
                    ConfigResource.Type.TOPIC, topic, incremental_configs=entries
                )
                alter = client.incremental_alter_configs
                return "alter_settings", topic, lambda: wait(alter([about])[about])

    def _wait(self, future: Future[Any]) -> object:
        # The library has its own limit; this one is for a call that exceeds it.
        return future.result(self._limit_s + 5)

    def _complete(
        self, command: AdminCommand, api: str, subject: str, call: Callable[[], object]
    ) -> None:
        try:
            call()
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            ended = Ended(
                api, subject, outcomes.of_admin(error), error.name(), reason=outcomes.reason(error)
            )
        except TimeoutError:
            ended = Ended(api, subject, "unknown", "_TIMED_OUT")
        else:
            ended = Ended(api, subject, "ok")
        self._record(command, ended)

    def _record(self, command: AdminCommand, ended: Ended) -> None:
        self._session.recorder.record(
            AdminCompleted(
                operation=command.operation,
                api=ended.api,
                subject=ended.subject,
                outcome=ended.outcome,
                error=ended.error,
                details=ended.details,
                reason=ended.reason,
            )
        )


def _elected(results: Any) -> None:
    """Raises the first error of a partition that could not be elected for."""
    for error in results.values():
        if error is not None and error.code() != KafkaError.ELECTION_NOT_NEEDED:
            raise KafkaException(error)
