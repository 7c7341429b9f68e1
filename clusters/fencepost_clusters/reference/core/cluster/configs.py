"""Settings that can be changed while the cluster runs: a topic's own, and those of all brokers.

They are records like any other change. An empty value means that the setting was deleted. A topic's
own setting overrides that of all brokers, and both override a broker's file.
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepost_clusters.reference.core.cluster.decisions import ChangeDecision, DecisionContext
from fencepost_clusters.reference.core.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE, Image
from fencepost_clusters.reference.core.cluster.topic_settings import (
    OF_ALL_BROKERS,
    TOPIC_SETTINGS,
    default,
    objection,
)
from fencepost_clusters.reference.core.node.settings import SWITCHES, Settings
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error

SET, DELETE = 0, 1
OF_TOPIC, OF_BROKERS, OF_FILE, OF_DEFAULT = 1, 3, 4, 5


def alter(on: DecisionContext, asked: a.IncrementalAlterConfigsRequest) -> ChangeDecision:
    """Sets and deletes settings; for each resource, either all changes or none.

    Kafka's tools delete throttles, of single brokers, too, that were never set: such a deletion
    changes nothing.
    """
    records: list[r.Record] = []
    responses: list[a.AlterConfigsResourceResponse] = []
    for one in asked.resources:
        error, message = _judge(on.image, one)
        if error is Error.NONE and not asked.validate_only:
            records += [
                r.ConfigRecord(
                    resource_type=one.resource_type,
                    resource_name=one.resource_name,
                    name=config.name,
                    value=(config.value or "") if config.config_operation == SET else "",
                )
                for config in one.configs
                if config.config_operation == SET or config.name in _set_now(on.image, one)
            ]
        responses.append(
            a.AlterConfigsResourceResponse(
                error_code=error,
                error_message=message,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
        )
    return ChangeDecision(
        tuple(records), a.IncrementalAlterConfigsResponse(responses=tuple(responses))
    )


def _judge(image: Image, asked: a.AlterConfigsResource) -> tuple[Error, str | None]:
    now = _set_now(image, asked)
    changed = [c for c in asked.configs if c.config_operation != DELETE or c.name in now]
    of_one_broker = asked.resource_type == BROKER_RESOURCE and asked.resource_name in map(
        str, image.brokers
    )
    if of_one_broker and not changed:
        return Error.NONE, None
    error, message = _resource(image, asked.resource_type, asked.resource_name)
    if error is not Error.NONE:
        return error, message
    for config in changed:
        if asked.resource_type == BROKER_RESOURCE and config.name not in OF_ALL_BROKERS:
            return Error.INVALID_CONFIG, f"{config.name} cannot be changed while the cluster runs"
        if config.config_operation not in (SET, DELETE):
            return Error.INVALID_CONFIG, f"{config.name} is no list: it can be set or deleted"
        wrong = objection(config.name, config.value) if config.config_operation == SET else None
        if wrong is not None:
            return Error.INVALID_CONFIG, wrong
    return Error.NONE, None


def _set_now(image: Image, asked: a.AlterConfigsResource) -> Mapping[str, str]:
    """The settings of a resource that have a value of their own."""
    if asked.resource_type == TOPIC_RESOURCE:
        return image.settings.get(asked.resource_name, {})
    return {} if asked.resource_name else image.broker_settings


def _resource(image: Image, kind: int, name: str) -> tuple[Error, str | None]:
    if kind == TOPIC_RESOURCE:
        known = name in image.topics
        return (Error.NONE, None) if known else (Error.UNKNOWN_TOPIC_OR_PARTITION, None)
    if kind == BROKER_RESOURCE:
        if name == "":
            return Error.NONE, None
        return Error.INVALID_REQUEST, "settings are of a topic or of all brokers, not of one"
    return Error.INVALID_REQUEST, f"resource type {kind} has no settings here"


def alter_refused(asked: a.IncrementalAlterConfigsRequest, error: Error) -> a.AdminResponse:
    return a.IncrementalAlterConfigsResponse(
        responses=tuple(
            a.AlterConfigsResourceResponse(
                error_code=error,
                error_message=None,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one in asked.resources
        )
    )


def describe(
    image: Image, settings: Settings, me: int, asked: a.DescribeConfigsRequest
) -> a.DescribeConfigsResponse:
    """The settings of topics, of all brokers, and of this broker, each with its source."""
    return a.DescribeConfigsResponse(
        results=tuple(_described(image, settings, me, one) for one in asked.resources)
    )


def _shown(name: str, value: int) -> str:
    return ("false", "true")[value != 0] if name in SWITCHES else str(value)


def _described(
    image: Image, settings: Settings, me: int, asked: a.DescribeConfigsResource
) -> a.DescribeConfigsResult:
    kind, name = asked.resource_type, asked.resource_name
    values: Mapping[str, tuple[str, int]]
    if kind == BROKER_RESOURCE and name == str(me):
        error, message = Error.NONE, None
        values = {key: (_shown(key, value), OF_FILE) for key, value in settings.numbers.items()}
        values |= {k: (v, OF_BROKERS) for k, v in image.broker_settings.items() if v}
    else:
        error, message = _resource(image, kind, name)
        values = {
            k: (v, OF_BROKERS)
            for k, v in image.broker_settings.items()
            if v and (kind != TOPIC_RESOURCE or k in TOPIC_SETTINGS)
        }
        if kind == TOPIC_RESOURCE:
            unchanged = {
                key: (default(key, settings), OF_FILE if one.of_brokers else OF_DEFAULT)
                for key, one in TOPIC_SETTINGS.items()
            }
            values = unchanged | values
            values |= {k: (v, OF_TOPIC) for k, v in image.settings.get(name, {}).items() if v}
    if error is not Error.NONE:
        return a.DescribeConfigsResult(
            error_code=error, error_message=message, resource_type=kind, resource_name=name
        )
    wanted = values if asked.configuration_keys is None else asked.configuration_keys
    configs = tuple(
        a.DescribeConfigsResourceResult(
            name=key,
            value=values[key][0],
            read_only=key not in (TOPIC_SETTINGS if kind == TOPIC_RESOURCE else OF_ALL_BROKERS),
            config_source=values[key][1],
        )
        for key in wanted
        if key in values
    )
    return a.DescribeConfigsResult(
        error_code=Error.NONE,
        error_message=None,
        resource_type=kind,
        resource_name=name,
        configs=configs,
    )
