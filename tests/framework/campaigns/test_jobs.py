"""One action on several items, in processes of their own."""

from __future__ import annotations

import os
import signal
from multiprocessing import active_children

import pytest

from fencepost import EnvironmentFailed, UsageError
from fencepost.campaigns.jobs import done, jobs_for

pytestmark = pytest.mark.tool


def test_one_job_is_done_in_this_process() -> None:
    assert list(done(lambda item: (item, os.getpid()), ["a", "b"], 1)) == [
        (0, ("a", os.getpid())),
        (1, ("b", os.getpid())),
    ]


def test_each_item_has_a_process_of_its_own() -> None:
    results = dict(done(lambda item: (item, os.getpid()), "abcde", 2))
    assert [results[place][0] for place in range(5)] == list("abcde")
    assert len({pid for _, pid in results.values()} - {os.getpid()}) == 5


def test_no_more_take_place_at_a_time_than_there_are_jobs() -> None:
    for _ in done(lambda item: len(active_children()), range(6), 3):
        assert len(active_children()) <= 3


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_of_an_action_is_raised_and_the_others_are_ended(jobs: int) -> None:
    def fail(item: int) -> int:
        if item == 1:
            raise UsageError("there is no defect x")
        if item > 1:
            signal.pause()
        return item

    with pytest.raises(UsageError, match="there is no defect x"):
        list(done(fail, range(4), jobs))
    assert active_children() == []


def test_an_error_that_cannot_be_sent_is_described() -> None:
    class Local(Exception):
        pass

    def fail(item: int) -> None:
        raise Local("lost on the way")

    with pytest.raises(RuntimeError, match="lost on the way"):
        list(done(fail, range(2), 2))


def test_a_process_that_dies_is_named() -> None:
    with pytest.raises(EnvironmentFailed, match="ended with exit code -9"):
        list(done(lambda item: os.kill(os.getpid(), signal.SIGKILL), range(2), 2))


def test_a_real_cluster_has_the_machine_for_itself() -> None:
    assert jobs_for("process") == jobs_for("docker") == 1
    assert jobs_for("simulated") == os.cpu_count()
