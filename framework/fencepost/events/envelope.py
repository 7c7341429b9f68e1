"""The envelope round every event's body.

Events contain no cycles, so the collector of cycles need not visit them (`gc=False`): a history has
millions.

See docs/decisions/01-envelope.md.
See docs/decisions/09-no-cycles.md.
"""

from __future__ import annotations

from functools import cache

from msgspec import Struct


class Cause(Struct, frozen=True, gc=False, array_like=True):
    """An event (`request` false: seq is a node_seq) or a request (true: a correlation id)."""

    process: str
    seq: int
    request: bool = False

    def __str__(self) -> str:
        return f"{self.process}{':' if self.request else '@'}{self.seq}"


class Unrecognised(Struct, frozen=True, gc=False, tag="fencepost.unrecognised", kw_only=True):
    """An event of a kind that no loaded plugin declares. Its text is kept; no rule judges it."""

    kind: str
    raw: str

    def sentence(self) -> str:
        return f"{self.kind}: {self.raw}"


class Event(Struct, frozen=True, gc=False):
    """The envelope of one event. `body` is of a declared kind."""

    run: str
    process: str
    node_seq: int
    at_ns: int
    body: Struct
    cause: Cause | None = None

    @property
    def kind(self) -> str:
        """The body's tag, such as `process.exited`."""
        return kind_name(type(self.body))

    @property
    def ref(self) -> Cause:
        """The name by which other events refer to this one."""
        return Cause(self.process, self.node_seq)


@cache
def kind_name(kind: type[Struct]) -> str:
    """The tag of a body class; raises TypeError if it has none."""
    tag = kind.__struct_config__.tag
    if not isinstance(tag, str):
        raise TypeError(
            f"the event kind {kind.__name__} has no tag: declare it with tag='plugin.name'"
        )
    return tag
