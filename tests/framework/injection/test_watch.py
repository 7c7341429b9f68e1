"""The watch over links that no fault changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from fencepost import EnvironmentFailed, Link, LinkFailed
from fencepost.injection.watch import EVERY_NS, LinkWatch

ONE_TWO = Link("a", "b", 9)


class Links:
    """Links of two slots, of which some were changed by another program."""

    def __init__(self) -> None:
        self.sources: Sequence[str] = ("a", "b")
        self.checked: list[str] = []
        self.wrong: dict[str, Mapping[str, str]] = {}

    def repaired(self, source: str) -> Mapping[str, str]:
        self.checked.append(source)
        return self.wrong.pop(source, {})


def every(slot: str) -> bool:
    """A process lives in each slot."""
    return True


@pytest.fixture
def links() -> Links:
    return Links()


def test_each_slot_is_checked_once_in_the_interval(links: Links) -> None:
    watch = LinkWatch(links, lambda: (), 0)
    for step in range(100):
        watch.check(EVERY_NS + step * EVERY_NS // 20)
    assert len(links.checked) == 10
    assert set(links.checked[::2]) == {"a"}
    assert set(links.checked[1::2]) == {"b"}


def test_what_failed_is_doubtful_since_it_was_last_seen(links: Links) -> None:
    watch = LinkWatch(links, lambda: (), 5)
    watch.check(EVERY_NS + 5)
    links.wrong = {"a": {"a -> b:9": "it has no proxy"}, "b": {"b -> a:9": "it is disabled"}}
    at_end = watch.at_end(3 * EVERY_NS, ready=False, lives=every)
    assert at_end == [
        LinkFailed(link="a -> b:9", what="it has no proxy", since_ns=EVERY_NS + 5),
        LinkFailed(link="b -> a:9", what="it is disabled", since_ns=5),
    ]
    assert watch.at_end(4 * EVERY_NS, ready=False, lives=every) == []


def test_a_link_that_carries_nothing_may_have_been_dead_all_the_time(links: Links) -> None:
    watch = LinkWatch(links, lambda: [ONE_TWO], 0)
    assert watch.at_end(9, ready=False, lives=every) == []
    (failed,) = watch.at_end(9, ready=True, lives=every)
    assert (failed.link, failed.what, failed.since_ns) == (
        *("a -> b:9", "nothing answered through it", 0),
    )


@pytest.mark.parametrize("ended", ["a", "b"])
def test_a_link_of_a_process_that_ended_meanwhile_has_not_failed(links: Links, ended: str) -> None:
    watch = LinkWatch(links, lambda: [ONE_TWO], 0)
    assert watch.at_end(9, ready=True, lives=lambda slot: slot != ended) == []


def test_a_toxiproxy_that_cannot_be_replaced_is_named(
    links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(source: str) -> Mapping[str, str]:
        raise EnvironmentFailed(f"the toxiproxy of {source} hung twice")

    monkeypatch.setattr(links, "repaired", gone)
    (failed,) = LinkWatch(links, lambda: (), 0).check(EVERY_NS)
    assert failed.what == "the toxiproxy of a hung twice"
