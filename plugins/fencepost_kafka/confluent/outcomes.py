"""What an answer proves about an operation: ok, failed (certainly no effect) or unknown."""

from __future__ import annotations

from confluent_kafka import KafkaError

from fencepost_kafka.events.values import CallOutcome

NEVER_SENT = frozenset({KafkaError._QUEUE_FULL, KafkaError._FATAL, KafkaError._INVALID_ARG})
"""Errors of handing over a message: the library never accepted it."""

REFUSED_FOR_GOOD = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.INVALID_RECORD,
    }
)
"""A broker's errors that are the same for every try, so no earlier try can have stored the message.

Other errors prove nothing: the library retries, and its last error hides what the first try did.
"""

ADMIN_IN_DOUBT = frozenset(
    {
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.UNKNOWN,
    }
)
"""A broker's answers to an administrative request after which its effect is unknown."""


def reason(error: KafkaError) -> str:
    """What was said about an error beyond its name: a broker's own sentence, such as why a request
    is invalid. Empty if there is only the sentence that librdkafka has for every such error."""
    said = error.str()
    return "" if said == KafkaError(error.code()).str() else said


def of_produce(acks: int, error: KafkaError | None) -> CallOutcome:
    """The outcome of a message that was handed over, from its delivery report."""
    if error is None:
        # With acks=0 there is no answer; the report says only that the bytes were written.
        return "ok" if acks != 0 else "unknown"
    return "failed" if error.code() in REFUSED_FOR_GOOD else "unknown"


def of_admin(error: KafkaError | None) -> CallOutcome:
    """The outcome of an administrative call; after an error of the library itself it is unknown."""
    if error is None:
        return "ok"
    local = error.code() < 0
    return "unknown" if local or error.code() in ADMIN_IN_DOUBT else "failed"
