"""The codec between events and NDJSON lines.

See docs/decisions/02-kinds.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Union, final, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from fencepost.events.apps import AppReady, AppStarted, AppWorksAgain, CheckJudged
from fencepost.events.envelope import Cause, Event, Unrecognised, kind_name
from fencepost.events.integers import check_width
from fencepost.events.processes import (
    ClientFailed,
    ClientStarted,
    ConnectionClosed,
    NodeStarted,
    NodeStopped,
    ProcessAsked,
    ProcessExited,
    ProcessLeft,
    ProcessResumed,
    ProcessSpawned,
    Stalled,
)
from fencepost.events.run import (
    Administered,
    ClusterRecovered,
    EvidenceMissed,
    EvidenceSupplied,
    FaultHealed,
    FaultInjected,
    FaultIntended,
    FaultTookEffect,
    LinkFailed,
    PhaseStarted,
    PromiseObserved,
    RunEnded,
    RunStarted,
    TestEnded,
    TestStarted,
)

SCHEMA_VERSION = 3
"""Versions 1 and 2 are read as well: see `FORMER`."""


@dataclass(frozen=True, slots=True)
class Former:
    """How an earlier schema version wrote a kind: by its former tag, and former names of fields.

    `fields` holds a field's present name -> its former one.
    """

    tag: str
    name: str
    fields: Mapping[str, str] = field(default_factory=dict)

    def wrote(self, raw: bytes) -> bool:
        """Whether it may have written this body, which has its tag."""
        return self.tag != self.name or any(
            f'"{old}"'.encode() in raw for old in self.fields.values()
        )


FORMER = (
    Former("fault.struck", "fault.injected"),
    Former("test.promise_witnessed", "test.promise_observed", {"seen_by": "witness"}),
    Former("node.started", "node.started", {"log_end": "metadata_offset"}),
)
"""What has changed since schema version 1; the kinds of plugins did not change."""


KINDS: tuple[type[Struct], ...] = (
    RunStarted,
    PhaseStarted,
    RunEnded,
    EvidenceMissed,
    EvidenceSupplied,
    FaultInjected,
    FaultIntended,
    FaultTookEffect,
    FaultHealed,
    Administered,
    LinkFailed,
    TestStarted,
    TestEnded,
    PromiseObserved,
    ClusterRecovered,
    ProcessSpawned,
    ProcessAsked,
    ProcessExited,
    ProcessLeft,
    ProcessResumed,
    NodeStarted,
    NodeStopped,
    Stalled,
    ConnectionClosed,
    ClientStarted,
    ClientFailed,
    AppStarted,
    AppReady,
    AppWorksAgain,
    CheckJudged,
    Unrecognised,
)
"""The kinds that every run has."""


_SCALARS = (str, int, float, bool)


_Number = Annotated[int, Meta(ge=0, le=1 << 62)]


def _line(body: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of the envelope with a body of that type."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        ("run", str),
        ("process", str),
        ("node_seq", _Number),
        ("at_ns", _Number),
        ("body", body),
        ("cause", Cause | None, None),
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Line", fields, frozen=True))


class _Tag(Struct, frozen=True):
    type: str


@final
class Codec:
    """Events to NDJSON lines and back, for the kinds that every run has and those of plugins.

    Raises ValueError for a kind whose tag is not `plugin.name`, and for two kinds with one tag.
    """

    LINE_END: ClassVar[bytes] = b"\n"

    def __init__(self, plugin_kinds: tuple[type[Struct], ...] = ()) -> None:
        kinds = (*KINDS, *plugin_kinds)
        for kind in kinds:
            if "." not in kind_name(kind):
                name = kind_name(kind)
                raise ValueError(f"the event kind {name!r} has no tag of the form plugin.name")
        self.kinds = {kind_name(kind): kind for kind in kinds}
        if len(self.kinds) != len(kinds):
            raise ValueError("two event kinds share one name")
        self._encoder = msgspec.json.Encoder()
        self._line = _line(Union[tuple(kinds)])  # noqa: UP007 the kinds are known only now
        self._any_line = _line(msgspec.Raw)
        self._changed = frozenset(self.kinds[one.name] for one in FORMER)
        self._tag = msgspec.json.Decoder(_Tag)
        self._bodies = {name: msgspec.json.Decoder(kind) for name, kind in self.kinds.items()}
        self._former = {
            one.tag: (one, msgspec.json.Decoder(_as_written(self.kinds[one.name], one)))
            for one in FORMER
        }

    def encode(self, event: Event) -> bytes:
        """One line, its end included."""
        return self._encoder.encode(event) + self.LINE_END

    def decode(self, line: bytes) -> Event:
        """The event of one line; raises msgspec.DecodeError when it is not a whole event.

        An undeclared kind comes back as `Unrecognised`, with its text.
        """
        try:
            return self._decoded(line)
        except UnicodeDecodeError as wrong:
            raise msgspec.DecodeError(f"the text is not UTF-8: {wrong.reason}") from wrong
        except RecursionError:
            raise msgspec.DecodeError("the text is nested too deeply") from None

    def _decoded(self, line: bytes) -> Event:
        check_width(line)
        try:
            # The usual case: one call decodes envelope and body, and checks the types of all
            # fields.
            got = self._line.decode(line)
        except msgspec.ValidationError:
            got = None  # of an undeclared kind, of a former version, or no event
        # The body once more, by itself: its kind may be unknown, which is no error, or it was
        # written by a former version. A kind whose fields had other names may even decode without
        # an error, as one whose new fields are optional: so each line of such a kind is looked at
        # again.
        if got is None or type(got.body) in self._changed:
            got = self._any_line.decode(line)
            body = self._body(got.body)
        else:
            body = got.body
        return Event(
            run=got.run,
            process=got.process,
            node_seq=got.node_seq,
            at_ns=got.at_ns,
            body=body,
            cause=got.cause,
        )

    def _body(self, raw: msgspec.Raw) -> Struct:
        """A body of any schema version and kind."""
        name = self._tag.decode(raw).type
        former, old_decoder = self._former.get(name, (None, None))
        if former is not None and old_decoder is not None and former.wrote(bytes(raw)):
            old = old_decoder.decode(raw)
            fields = {field: getattr(old, field) for field in old.__struct_fields__}
            return self.kinds[former.name](**fields)
        # A known kind that did not decode: this raises the error that says which field is wrong.
        decoder = self._bodies.get(name)
        if decoder is not None:
            return decoder.decode(raw)
        # Of a plugin that is not loaded here. The text is kept, so that writing the event again
        # loses nothing.
        return Unrecognised(kind=name, raw=bytes(raw).decode())


def nested_fields(kind: type[Struct]) -> Sequence[str]:
    """The fields of a kind that are not flat.

    A flat field is a column of a table: text, a number, a truth value, or a tuple of any length of
    one of them. A `Literal` of words is text.
    """
    return [field.name for field in msgspec.structs.fields(kind) if not _is_flat(field.type)]


def _is_flat(annotation: Any) -> bool:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return all(isinstance(word, str) for word in arguments)
    if origin is tuple:
        return len(arguments) == 2 and arguments[1] is Ellipsis and arguments[0] in _SCALARS
    return annotation in _SCALARS


def _as_written(kind: type[Struct], former: Former) -> type[Struct]:
    """A kind with the fields of this one, written as it was formerly."""
    fields = [
        (f.name, f.type) if f.required else (f.name, f.type, f.default)
        for f in msgspec.structs.fields(kind)
    ]
    return msgspec.defstruct(
        f"Old{kind.__name__}", fields, frozen=True, tag=former.tag, rename=former.fields
    )
