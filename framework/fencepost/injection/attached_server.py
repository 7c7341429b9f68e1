"""A toxiproxy server that somebody else runs, by toxiproxy-python.

That client lacks what a user must not feel: it waits for an answer for ever; it keeps one address
for the whole process, so a second server would take over the first one's proxies; it takes an error
of the server for an answer; and it quotes no name. All four are made good here, and its classes are
used nowhere else.

Only toxics whose names begin with `OURS` are ever added or removed, and no proxy is changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, final
from urllib.parse import quote

import requests
from msgspec import Struct
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from fencepost.model.errors import EnvironmentFailed
from fencepost.model.system.attachment import OURS

LIMIT_S = 2.0
"""A change holds up the harness, which has one thread."""
_REFUSED = 400
_DIRECT = {"http": "", "https": ""}
"""No proxy of the environment stands before it: a server on loopback would not be found there."""


class ShownToxic(Struct, frozen=True, order=True):
    """A toxic as the server shows it; its attributes are JSON with sorted keys."""

    name: str
    type: str
    stream: str
    toxicity: float
    attributes: str

    @property
    def ours(self) -> bool:
        """Whether a run of Fencepost added it."""
        return self.name.startswith(OURS)


class ShownProxy(Struct, frozen=True):
    """A proxy as the server shows it."""

    name: str
    listen: str
    upstream: str
    enabled: bool
    toxics: tuple[ShownToxic, ...] = ()

    @property
    def theirs(self) -> ShownProxy:
        """The same without toxics of ours: what must be the same before and after."""
        return ShownProxy(
            self.name,
            self.listen,
            self.upstream,
            self.enabled,
            tuple(sorted(one for one in self.toxics if not one.ours)),
        )


@final
class TheirToxiproxy:
    """The server at `url`. Every method raises EnvironmentFailed if it does not answer in time, or
    refuses."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        # A class of its own for each server: toxiproxy-python keeps the address in the class.
        self._api: Any = type("Api", (APIConsumer,), {"host": host, "port": port})

    def proxies(self) -> Mapping[str, ShownProxy]:
        """Every proxy, by name."""
        listed = self._ask("get", "/proxies").json()
        return {
            name: ShownProxy(
                name,
                shown["listen"],
                shown["upstream"],
                shown["enabled"],
                tuple(sorted(_toxic(one) for one in shown["toxics"] or ())),
            )
            for name, shown in sorted(listed.items())
        }

    def add(self, proxy: str, toxic: ShownToxic) -> None:
        """Adds a toxic of ours."""
        assert toxic.ours
        body = {
            "name": toxic.name,
            "type": toxic.type,
            "stream": toxic.stream,
            "toxicity": toxic.toxicity,
            "attributes": json.loads(toxic.attributes),
        }
        self._ask("post", f"/proxies/{quote(proxy, safe='')}/toxics", json=body)

    def remove(self, proxy: str, toxic: str) -> None:
        """Removes a toxic of ours; one that is gone already is no error."""
        assert toxic.startswith(OURS)
        path = f"/proxies/{quote(proxy, safe='')}/toxics/{quote(toxic, safe='')}"
        self._ask("delete", path, gone_is_fine=True)

    def strays(self) -> Sequence[tuple[str, str]]:
        """The toxics of ours that are there, each with its proxy before it."""
        return [
            (name, one.name)
            for name, proxy in self.proxies().items()
            for one in proxy.toxics
            if one.ours
        ]

    def metrics(self) -> str:
        """The page of its metrics; empty if it was started without."""
        try:
            return str(self._ask("get", "/metrics").text)
        except EnvironmentFailed:
            return ""

    def _ask(self, method: str, path: str, *, gone_is_fine: bool = False, **more: Any) -> Any:
        try:
            answer = getattr(self._api, method)(path, timeout=LIMIT_S, proxies=_DIRECT, **more)
        except NotFound as gone:
            if gone_is_fine:
                return None
            raise self._refused(method, path, gone) from gone
        except (ProxyExists, InvalidToxic) as refused:
            raise self._refused(method, path, refused) from refused
        except requests.Timeout as late:
            raise EnvironmentFailed(
                f"the toxiproxy at {self.url} did not answer within {LIMIT_S:g} s"
            ) from late
        except requests.RequestException as failed:
            raise EnvironmentFailed(f"the toxiproxy at {self.url} is not reached") from failed
        if answer.status_code >= _REFUSED:
            raise self._refused(method, path, answer.text)
        return answer

    def _refused(self, method: str, path: str, why: object) -> EnvironmentFailed:
        said = " ".join(str(why).split())
        return EnvironmentFailed(f"the toxiproxy at {self.url} refused {method} {path}: {said}")


def _toxic(shown: Mapping[str, Any]) -> ShownToxic:
    return ShownToxic(
        shown["name"],
        shown["type"],
        shown["stream"],
        float(shown["toxicity"]),
        json.dumps(shown["attributes"], sort_keys=True),
    )
