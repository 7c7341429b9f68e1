"""A fork of the warm server is a process as any other, for who starts it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from warm_start import python

pytestmark = pytest.mark.tool

LOOKS = "import os, sys; print(os.getcwd(), os.environ.get('COLOUR'), sys.argv[1:], sys.path[0])"


def test_a_program_has_its_words_its_folder_and_its_variables(tmp_path: Path) -> None:
    shown = python(LOOKS, "a", "b c", folder=tmp_path, COLOUR="red")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == f"{tmp_path} red ['a', 'b c'] \n"
    assert python(LOOKS).stdout == f"{os.getcwd()} None [] \n"


def test_a_program_leaves_nothing_to_the_next_one(tmp_path: Path) -> None:
    changes = "import os, sys; os.environ['COLOUR'] = 'red'; sys.argv.append('a'); os.chdir('/')"
    assert python(changes, folder=tmp_path).returncode == 0
    assert python(LOOKS, folder=tmp_path).stdout == f"{tmp_path} None [] \n"


@pytest.mark.parametrize(
    ("code", "exit_code", "out", "error"),
    [
        ("import sys; sys.exit(7)", 7, "", ""),
        ("import sys; sys.exit('no')", 1, "", "no\n"),
        ("import os; os.kill(os.getpid(), 9)", -9, "", ""),
        ("import os; os.write(1, b'x'); os._exit(3)", 3, "x", ""),
        ("import atexit; atexit.register(print, 'last'); print('first')", 0, "first\nlast\n", ""),
        ("import sys; print(sys.stdin.read(), sys.stdout.isatty())", 0, " False\n", ""),
    ],
)
def test_a_program_ends_as_python_ends(code: str, exit_code: int, out: str, error: str) -> None:
    ended = python(code)
    assert (ended.returncode, ended.stdout, ended.stderr) == (exit_code, out, error)


def test_an_error_is_printed(tmp_path: Path) -> None:
    ended = python("1 / 0")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("ZeroDivisionError")


def test_a_program_finds_the_modules_of_its_own_path(tmp_path: Path) -> None:
    (tmp_path / "of_the_user.py").write_text("print('found')")
    assert python("import of_the_user", PYTHONPATH=os.fspath(tmp_path)).stdout == "found\n"
    assert python("import of_the_user").returncode == 1
    assert python("import of_the_user", folder=tmp_path).stdout == "found\n"


def test_what_python_reads_as_it_starts_has_a_start_of_its_own() -> None:
    assert python("import sys; print(sys.warnoptions)").stdout == "[]\n"
    assert (
        python("import sys; print(sys.warnoptions)", PYTHONWARNINGS="error").stdout == "['error']\n"
    )
