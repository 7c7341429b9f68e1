"""Views of Kafka clusters, with some of their state set by hand."""

from __future__ import annotations

from fencepost import View
from fencepost_kafka import KafkaView


def kafka_view(**state: object) -> View:
    """A view with these attributes, its own or of its Kafka fold."""
    view = View((KafkaView,))
    kafka = view.of(KafkaView)
    for name, value in state.items():
        setattr(kafka if hasattr(kafka, name) else view, name, value)
    return view
