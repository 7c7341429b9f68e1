"""Which mutations each part of a program reaches."""

from __future__ import annotations

import pytest

from fencepost.campaigns.mutants.mutations import REACHED, mutations_of, probed
from fencepost.campaigns.mutants.reach import Part, Reach, Recorder

SOURCE = b"""\
LIMIT = 3

def small(number):
    if number < LIMIT or (
        number
        is None
    ):
        return True
    return False

def counting(seen):
    seen.add(1)
    yield 1
    seen.add(2)
"""


class Probed:
    """The source's functions, probed for all of its mutations."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.numbered = dict(enumerate(mutations_of("m", SOURCE)))
        self.globals: dict[str, object] = {REACHED: self.recorder.reached}
        exec(probed(SOURCE, self.numbered), self.globals)

    def call(self, name: str, *arguments: object) -> object:
        self.recorder.begin(f"{name}{arguments}")
        function = self.globals[name]
        assert callable(function)
        return function(*arguments)

    def reached(self, was: str, now: str) -> set[str]:
        """The parts that reach a mutation."""
        (number,) = (n for n, one in self.numbered.items() if (one.was, one.now) == (was, now))
        return set(self.recorder.stop().of(number))


@pytest.fixture
def sizes() -> Probed:
    return Probed()


def test_a_statement_is_reached_where_it_is_executed(sizes: Probed) -> None:
    assert sizes.call("small", 2) is True
    assert sizes.call("small", 4) is False
    assert sizes.reached("return True", "return False") == {"small(2,)"}
    assert sizes.reached("return False", "return True") == {"small(4,)"}


def test_an_expression_is_reached_where_its_value_would_differ(sizes: Probed) -> None:
    for number in (2, 3, 4):
        sizes.call("small", number)
    assert sizes.reached("number < LIMIT", "(number <= LIMIT)") == {"small(3,)"}
    every = {"small(2,)", "small(3,)", "small(4,)"}
    assert sizes.reached("number\n        is None", "(number is not None)") == every - {"small(2,)"}
    whole = "number < LIMIT or (\n        number\n        is None\n    )"
    assert sizes.reached(whole, "(number < LIMIT and number is None)") == {"small(2,)"}


def test_an_expression_whose_other_value_is_an_error_is_reached() -> None:
    recorder = Recorder()
    recorder.begin("a")
    recorder.reached(1, lambda: 1 / 0)
    recorder.reached(2, lambda: False)
    reach = recorder.stop()
    assert set(reach.of(1)) == {"a"}
    assert set(reach.of(2)) == set()


def test_a_call_is_not_repeated_in_order_to_compare_values(sizes: Probed) -> None:
    source = b"def first(queue):\n    return queue.pop() < 2\n"
    recorder = Recorder()
    names: dict[str, object] = {REACHED: recorder.reached}
    exec(probed(source, dict(enumerate(mutations_of("m", source)))), names)
    recorder.begin("a")
    queue = [3, 1]
    assert eval("first(queue)", names, {"queue": queue})
    assert queue == [3]
    assert set(recorder.stop().of(0)) == {"a"}


def test_a_generator_that_a_part_resumes_is_executed_by_it(sizes: Probed) -> None:
    seen: set[int] = set()
    numbers = sizes.call("counting", seen)
    assert list(numbers) == [1]  # type: ignore[call-overload]
    assert seen == {1, 2}
    sizes.recorder.begin("later")
    assert sizes.reached("seen.add(2)", "pass") == {"counting(set(),)"}


def test_what_is_reached_at_import_concerns_every_part() -> None:
    recorder = Recorder()
    recorder.reached(7)
    recorder.begin("a")
    recorder.begin("b")
    reach = recorder.stop()
    assert reach.at_import(7)
    assert set(reach.of(7)) == {"a", "b"}
    assert set(reach.of(8)) == set()


def test_the_shortest_part_comes_first() -> None:
    parts = [Part("a", 2.0, {1, 2}), Part("b", 1.0, {2}), Part("c", 0.5, {3})]
    assert list(Reach(parts).of(2).items()) == [("b", 1.0), ("a", 2.0)]
