"""The published form of what a program of the user's did: a line of JSON for each operation.

    {"fencepost": "produce", "op": "b-7", "topic": "bills", "partition": 0, "at": 1767225600.25}
    {"fencepost": "produced", "op": "b-7", "topic": "bills", "partition": 0, "offset": 41,
     "outcome": "ok", "at": 1767225600.31}
    {"fencepost": "polled", "topic": "orders", "partition": 2, "offsets": [5, 6],
     "ops": ["o-5", "o-6"], "at": 1767225600.27}

`at` is the time in seconds since 1970: of `produce`, before the message is handed to the library;
of the others, once the library has answered. With these lines the clauses about clients judge the
program as they judge Fencepost's own clients: an acknowledged message that is gone, one that is
there twice, one that a later reader does not get.

* `op` names a message, and no other of the run. The message carries it: in its header
  `fencepost-op`, or as the first word of its value.
* `produce` needs the partition. A program that learns it from the answer leaves `produce` out. A
  message that failed before it had one has the partition -1.
* `acks` is "all", 1 or 0, and `idempotent` true or false, of `produce` and `produced`; they are
  "all" and false if they are left out.
* `outcome` is "ok" with an `offset`, "failed" if the message is certainly not stored, or
  "unknown"; `error` says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from fencepost import UsageError
from fencepost_kafka.events import Polled, ProduceCompleted, ProduceInvoked
from fencepost_kafka.events.values import CallOutcome

_KIND = "fencepost"
_Count = Annotated[int, Meta(ge=0)]
_Name = Annotated[str, Meta(min_length=1, max_length=249)]


class _Produce(
    Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="produce", forbid_unknown_fields=True
):
    op: _Name
    topic: _Name
    partition: _Count
    acks: Literal["all", 1, 0] = "all"
    idempotent: bool = False


class _Produced(
    Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="produced", forbid_unknown_fields=True
):
    op: _Name
    topic: _Name
    partition: Annotated[int, Meta(ge=-1)]
    """-1: it was never handed to one, and so is stored in none."""
    outcome: CallOutcome
    offset: int = -1
    acks: Literal["all", 1, 0] = "all"
    idempotent: bool = False
    error: str = ""


class _Polled(
    Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="polled", forbid_unknown_fields=True
):
    topic: _Name
    partition: _Count
    offsets: tuple[_Count, ...]
    ops: tuple[str, ...]


def parse(said: Mapping[str, object]) -> Sequence[Struct]:
    """The events of one such object, without its `at`; raises UsageError for one of another
    form."""
    try:
        line = msgspec.convert(said, _Produce | _Produced | _Polled)
    except msgspec.ValidationError as wrong:
        raise UsageError(f"not in the form of Kafka's clients: {wrong}") from wrong
    match line:
        case _Produce():
            return (
                ProduceInvoked(
                    operation=line.op,
                    topic=line.topic,
                    partition=line.partition,
                    acks=_acks(line.acks),
                    idempotent=line.idempotent,
                ),
            )
        case _Produced():
            if line.outcome == "ok" and line.partition < 0:
                raise UsageError(f"{line.op} was stored, and its line has no partition")
            if line.outcome == "ok" and line.offset < 0 and line.acks != 0:
                raise UsageError(f"{line.op} was stored, and its line has no offset")
            return (
                ProduceCompleted(
                    operation=line.op,
                    topic=line.topic,
                    partition=line.partition,
                    acks=_acks(line.acks),
                    outcome=line.outcome,
                    offset=line.offset if line.outcome == "ok" else -1,
                    error=line.error,
                ),
            )
        case _:
            if len(line.offsets) != len(line.ops):
                raise UsageError("a line has as many offsets as ops")
            return (
                Polled(
                    topic=line.topic,
                    partition=line.partition,
                    offsets=line.offsets,
                    operations=line.ops,
                    final=False,
                ),
            )


def _acks(given: Literal["all", 1, 0]) -> int:
    return -1 if given == "all" else given
