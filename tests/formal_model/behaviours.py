"""A behaviour of the model: what TLC prints of it, and what is kept of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import msgspec
from msgspec import Struct

Words = Mapping[str, Any]
"""What one node writes down: its kind is `k`."""

_STATE = re.compile(r"^STATE_\d+ ==", re.MULTILINE)
_NAME = re.compile(r"([A-Za-z]\w*) \|->")


@final
class Step(Struct, frozen=True):
    """A step: what the nodes write down in it, and the promises that are broken by then."""

    said: Sequence[Words]
    harm: tuple[str, ...] = ()


@final
class Behaviour(Struct, frozen=True):
    """The steps of one behaviour, of the variant that leaves this check out (empty: none)."""

    broken: str
    steps: Sequence[Step]

    @property
    def harm(self) -> frozenset[str]:
        """The promises that it breaks."""
        return frozenset(self.steps[-1].harm) if self.steps else frozenset()

    def until_harm(self) -> Behaviour:
        """Its steps up to the first that breaks a promise."""
        harmless = sum(not step.harm for step in self.steps)
        return self.upto(harmless + 1)

    def upto(self, count: int) -> Behaviour:
        """Its first steps."""
        return Behaviour(self.broken, self.steps[:count])


def printed(broken: str, text: str) -> Behaviour:
    """The behaviour that a file of TLC's simulation has."""
    steps = [
        Step(_value(_variable(state, "said")), tuple(sorted(_value(_variable(state, "harm")))))
        for state in _STATE.split(text)[1:]
    ]
    # A promise that is broken in a state is in `harm` from the next one on.
    ends = [*(step.harm for step in steps[1:]), steps[-1].harm]
    return Behaviour(
        broken, [Step(step.said, harm) for step, harm in zip(steps, ends, strict=True)]
    )


def _variable(state: str, name: str) -> str:
    _, _, rest = state.partition(f"/\\ {name} = ")
    return re.split(r"\n/\\ |\n\n|\n=", rest, maxsplit=1)[0]


def _value(text: str) -> Any:
    """A value of TLA+: numbers, strings, records, sequences, and sets of what may be sorted."""
    text = _NAME.sub(r'"\1":', text).replace("[", "{").replace("]", "}")
    text = text.replace("<<>>", "()").replace("<<", "(").replace(">>", ",)")
    text = text.replace("TRUE", "True").replace("FALSE", "False")
    return _plain(ast.literal_eval(" ".join(text.split())))


def _plain(value: Any) -> Any:
    """Without sets: of an empty one, it is not known what it would have held."""
    match value:
        case dict() if value:
            return {name: _plain(one) for name, one in value.items()}
        case tuple():
            return [_plain(one) for one in value]
        case set() | dict():
            return sorted(value)
        case _:
            return value


def written(behaviour: Behaviour) -> bytes:
    """A behaviour as a file has it: one line a step."""
    lines = [msgspec.json.encode({"broken": behaviour.broken})]
    lines += [msgspec.json.encode(step) for step in behaviour.steps]
    return b"\n".join(lines) + b"\n"


def read(path: Path) -> Behaviour:
    first, *lines = path.read_bytes().splitlines()
    steps = [msgspec.json.decode(line, type=Step) for line in lines]
    return Behaviour(msgspec.json.decode(first)["broken"], steps)


def read_all(folder: Path) -> Iterator[Behaviour]:
    for path in sorted(folder.glob("*.jsonl")):
        yield read(path)
