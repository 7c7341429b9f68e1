"""Each event in words: one sentence, for a terminal, a page and an explanation.

The writer's name and the time stand beside a sentence, not in it. A kind may bring its own sentence
(`Worded`); any other is shown as its name and its fields.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from fencepost.events import Event, kind_name
from fencepost.events.traits import is_worded


def sentence(event: Event) -> str:
    """The sentence of an event, without its time and its writer."""
    return sentence_of(event.body)


def sentence_of(body: Struct) -> str:
    """The sentence of a body."""
    if is_worded(body):
        return body.sentence()
    name = kind_name(type(body))
    fields = ", ".join(f"{name}={value}" for name, value in msgspec.structs.asdict(body).items())
    return f"{name}: {fields}" if fields else name
