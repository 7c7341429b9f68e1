"""Programs in processes of their own, without the start that Python and the imports take.

Nine tenths of what a short command costs are its start and its imports. So one process imports what
the command line needs, and forks for each program. A fork has its own working folder, environment,
output and exit code, and ends as Python ends.

What a fork cannot show is left to `subprocess`: which modules a program imports, how it meets a
signal, and all of Python that is rewritten, or set, as it starts.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from select import select
from typing import NamedTuple

import pytest
from _pytest.config import default_plugins
from _pytest.pathlib import make_numbered_dir

HERE = Path(__file__).resolve().parent
LIMIT_S = 300
COMMAND_LINE = "from fencepost.commands.cli import main; main()"
PYTEST = "import pytest, sys; sys.exit(pytest.main())"
SERVER = f"import sys; sys.path.append({str(HERE)!r}); import warm_start; exec(warm_start.serve())"
ENVIRONMENT = dict(os.environ)
"""The server's."""
Ended = subprocess.CompletedProcess[str]


class Program(NamedTuple):
    """What a fork becomes: `python -c CODE WORDS`."""

    code: str
    words: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]
    output: str
    """The folder of the files for its output and its errors."""


def fencepost(*words: str, folder: Path | None = None, **variables: str) -> Ended:
    """The command line, to its end."""
    return python(COMMAND_LINE, *words, folder=folder, **variables)


def runpytest(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    """As `runpytest_subprocess`."""
    temporary = make_numbered_dir(root=pytester.path, prefix="runpytest-", mode=0o700)
    begun = time.monotonic()
    ended = python(PYTEST, f"--basetemp={temporary}", *words)
    print(ended.stdout)
    print(ended.stderr, file=sys.stderr)
    return pytest.RunResult(
        ended.returncode,
        ended.stdout.splitlines(),
        ended.stderr.splitlines(),
        time.monotonic() - begun,
    )


def python(code: str, *words: str, folder: Path | None = None, **variables: str) -> Ended:
    """`python -c CODE WORDS` with further variables of the environment, to its end."""
    environment = {**os.environ, **variables}
    if _of_python(environment) != _of_python(ENVIRONMENT):  # Python reads them as it starts
        return subprocess.run(
            [sys.executable, "-c", code, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
            cwd=folder,
            env=environment,
        )
    sys.audit("os.fork")  # the test that asks for it must be marked (see `real_tests`)
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as output:
        program = Program(code, words, str(folder or Path.cwd()), environment, output)
        server.stdin.write(json.dumps(program) + "\n")
        server.stdin.flush()
        process = int(server.stdout.readline())
        late = not select([server.stdout], [], [], LIMIT_S)[0]
        if late:
            os.kill(process, signal.SIGKILL)
        exit_code = int(server.stdout.readline())
        if late:
            raise subprocess.TimeoutExpired(words, LIMIT_S)
        said = [Path(output, name).read_text() for name in ("stdout", "stderr")]
    return Ended(words, exit_code, *said)


def _of_python(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Variables whose effect is over when a fork begins; PYTHONPATH it can still follow."""
    rest = environment.keys() - {"PYTHONPATH"}
    return {name: environment[name] for name in rest if name.startswith("PYTHON")}


@cache
def _server() -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=pipe, stdout=pipe, text=True, env=ENVIRONMENT
    )
    atexit.register(server.communicate)  # without a further line it ends
    return server


# ------------------------------------------------------------------------------ in the server


def serve() -> str:
    """Forks for each line of standard input; returns in a fork, with what that is to run."""
    for group in ("pytest11", "fencepost", "fencepost.systems"):
        for entry in entry_points(group=group):
            if entry.module.startswith("fencepost"):
                import_module(entry.module)
    for module in ("fencepost.commands.cli", "typer._adapters"):
        import_module(module)
    for plugin in default_plugins:
        import_module(f"_pytest.{plugin}")
    # No fork looks for cycles among what all have, which would also copy it.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            program = Program(*json.loads(line))
            _become(program)
            return program.code
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
    return ""


def _become(program: Program) -> None:
    new = os.O_WRONLY | os.O_CREAT
    files = [
        os.open(os.devnull, os.O_RDONLY),
        *(os.open(f"{program.output}/{name}", new) for name in ("stdout", "stderr")),
    ]
    for stream, file in enumerate(files):
        os.dup2(file, stream)
        os.close(file)
    os.environ.clear()
    os.environ.update(program.environment)
    os.chdir(program.folder)
    paths = program.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = ["", *filter(None, paths), *sys.path[1:]]
    sys.path.remove(str(HERE))
    sys.argv[1:] = program.words
