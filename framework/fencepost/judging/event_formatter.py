"""Each event in words: one sentence about what it says, for a terminal, a page and an explanation.

The writer's name and the time stand beside a sentence, not in it. A kind may bring its own sentence
(`Worded`); any other reads as its name and its fields.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from fencepost.events import Event, kind_name
from fencepost.events.traits import Worded


def sentence(event: Event) -> str:
    """What the event says, in words, without its time and its writer."""
    return sentence_of(event.body)


def sentence_of(body: Struct) -> str:
    """What a body says."""
    if isinstance(body, Worded):
        return body.sentence()
    name = kind_name(type(body))
    fields = ", ".join(f"{name}={value}" for name, value in msgspec.structs.asdict(body).items())
    return f"{name}: {fields}" if fields else name
