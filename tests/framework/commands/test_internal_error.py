"""An error that no command foresaw has an exit code of its own: it is no violation."""

from __future__ import annotations

import errno
import sys

import pytest

from fencepost.commands import cli, entry, plugins


def test_an_unforeseen_error_is_internal_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise RuntimeError("orders \x1b[2J")

    monkeypatch.setattr(plugins, "load_plugins", fail)
    monkeypatch.setattr(sys, "argv", ["fencepost", "plugins"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 70
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    last = said.splitlines()[-1]
    assert last.startswith("fencepost: internal error: RuntimeError: orders \\x1b[2J. This is no")
    assert last.endswith("report it with the lines above")
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (
            OSError(errno.ENOSPC, "No space left", "/mnt/x"),
            4,
            "the disk is full: /mnt/x needs more",
        ),
        (OSError(errno.EIO, "Input/output error", "/mnt/x"), 4, "/mnt/x cannot be written: Input"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 70, "internal error: Permiss"),
        (BaseException("odd"), 70, "internal error: BaseException: odd. This is no verdict"),
        (SystemExit(1), 70, "internal error: SystemExit: 1. This is no verdict"),
        (BrokenPipeError(), 4, "the standard output was closed before its end"),
    ],
)
def test_nothing_but_a_verdict_ends_a_command_with_1(
    error: BaseException,
    code: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(plugins, "load_plugins", fail)
    monkeypatch.setattr(sys, "argv", ["fencepost", "plugins"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code
    assert capfd.readouterr().err.splitlines()[-1].startswith(f"fencepost: {says}")


def test_a_module_that_cannot_be_imported_is_an_internal_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fencepost.commands.cli", None)
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 70
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert said.splitlines()[-1].startswith("fencepost: internal error: ModuleNotFoundError: ")
