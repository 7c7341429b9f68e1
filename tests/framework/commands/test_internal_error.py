"""An error that no command foresaw has an exit code of its own: it is no violation."""

from __future__ import annotations

import sys

import pytest

from fencepost.commands import cli, plugins


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
    assert last.startswith("fencepost: internal error: RuntimeError: orders \\x1b[2J. This")
    assert last.endswith("report it with the lines above")
    assert "\x1b" not in said
