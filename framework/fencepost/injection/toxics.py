"""The toxics that make a link's state, checked before toxiproxy sees them.

toxiproxy reports no error for bad input: it ignores a misspelt attribute, reads a negative delay as
none, and crashes on a slicer without a size. So only these toxics are ever sent, with every
attribute named. Toxicity is always 1, since toxiproxy's `-seed` has no effect: its random choices
could not be replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fencepost.model.errors import UsageError
from fencepost.model.faults.hold import Hold
from fencepost.model.runtime import LinkState

UPSTREAM = "upstream"
DOWNSTREAM = "downstream"

CUT = "cut"
"""The kind of our own toxic for cuts (`toxiproxy/cut`). The stock `timeout` passes the end of a
connection on, which a node notices at once, where a cut is silence."""
_LEAST = {
    CUT: {},
    "latency": {"latency": 0, "jitter": 0},
    "bandwidth": {"rate": 1},
}
"""Kind -> attribute -> its smallest value. A rate of 0 would block toxiproxy's own API."""
_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True, order=True)
class Toxic:
    """One toxic of one direction of a link; its name is `<kind>-<stream>`.

    Raises UsageError for a kind, stream or attribute that toxiproxy would take silently, or badly.
    """

    kind: str
    stream: str
    attributes: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        least = _LEAST.get(self.kind)
        if least is None:
            raise UsageError(f"links have no toxic '{self.kind}'; they have {', '.join(_LEAST)}")
        if self.stream not in (UPSTREAM, DOWNSTREAM):
            raise UsageError(f"a toxic's stream is {UPSTREAM} or {DOWNSTREAM}, not '{self.stream}'")
        names = [name for name, _ in self.attributes]
        if sorted(names) != sorted(least):
            raise UsageError(f"a {self.kind} toxic needs exactly {', '.join(least)}, not {names}")
        for name, value in self.attributes:
            # `type(...) is`, since True is an instance of int. The upper bound is that of 32 bits:
            # far above every sensible delay, and below what overflows when milliseconds become
            # nanoseconds in 64 bits.
            if type(value) is not int or not least[name] <= value <= _MOST:
                raise UsageError(
                    f"the {name} of a {self.kind} toxic is a whole number "
                    f"from {least[name]} to {_MOST}, not {value!r}"
                )

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.stream}"


HOLD = "hold"
"""The name and the type of the toxic that holds messages: our own (`toxiproxy/hold`)."""
_MOST_HELD_BYTES = 2**20


def hold_attributes(what: Hold | None, upstream: str) -> Mapping[str, object]:
    """The attributes of the toxic, all of them by name. Without a hold, it releases the messages
    that it holds and passes all others.

    Messages that outlived their connection go to `upstream`. Raises UsageError for values that make
    no sense.
    """
    # Mode `pass` needs attributes, too: one that is not named would keep its value from the last
    # hold.
    one = what or Hold(())
    if min(one.skip, one.first, one.delay_ms) < 0 or (one.action == "delay") != (one.delay_ms > 0):
        raise UsageError(
            "a hold's skip, first and delay_ms are not negative, and only a delay has a delay_ms"
        )
    return {
        "mode": one.action if what else "pass",
        "prefixes": [prefix.hex() for prefix in one.prefixes],
        "containing": [part.hex() for part in one.containing],
        "skip": one.skip,
        "first": one.first,
        "delay_ms": one.delay_ms,
        "overtake": one.overtake,
        "on_close": "keep" if one.outlives else "discard",
        "upstream": upstream,
        "max_held_bytes": _MOST_HELD_BYTES,
    }


def toxics(state: LinkState) -> frozenset[Toxic]:
    """The toxics of a link in this state; raises UsageError for a state that makes no sense.

    A cut drops what is sent, the end of a connection too; connecting still succeeds, and healing
    closes every connection that met the cut. Delays and the rate apply to each direction.
    """
    if state.rate_kb < 0:
        raise UsageError(f"rate_kb is kilobytes a second, or 0 for no limit, not {state.rate_kb}")
    wanted = set()
    for stream, cut in ((UPSTREAM, state.cut_upstream), (DOWNSTREAM, state.cut_downstream)):
        if state.latency_ms or state.jitter_ms:
            delay = (("jitter", state.jitter_ms), ("latency", state.latency_ms))
            wanted.add(Toxic("latency", stream, delay))
        if state.rate_kb:
            wanted.add(Toxic("bandwidth", stream, (("rate", state.rate_kb),)))
        if cut:
            wanted.add(Toxic(CUT, stream, ()))
    return frozenset(wanted)
