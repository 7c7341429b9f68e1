"""The sentence of an error, apart from what a program printed."""

from __future__ import annotations

from pathlib import Path

from fencepost import EnvironmentFailed


def notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


def test_what_is_in_no_file_is_a_note_below_the_sentence() -> None:
    failed = EnvironmentFailed("Go failed", "no such module\nexit")
    assert (str(failed), failed.detail, failed.log) == ("Go failed", "no such module\nexit", None)
    assert notes(failed) == ["no such module\nexit"]


def test_what_is_in_a_log_is_a_field_alone() -> None:
    failed = EnvironmentFailed("it ended", "line 1\nline 2", Path("/run/logs/a.log"))
    assert (str(failed), failed.log) == ("it ended", Path("/run/logs/a.log"))
    assert failed.detail == "line 1\nline 2"
    assert notes(failed) == []


def test_a_sentence_of_several_lines_is_cut_after_the_first() -> None:
    failed = EnvironmentFailed("Spark did not answer: refused\nJVM stacktrace:\n  frame")
    assert str(failed) == "Spark did not answer: refused"
    assert failed.detail == "JVM stacktrace:\n  frame"
