"""Programs of the user's own as real processes, beside echo nodes: started, judged, ended."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import Struct
from tests.echo_node import EchoSystem
from tests.echo_run import PAIR, advance, answered, echo_run

from fencepost import (
    AppStarted,
    AppWorksAgain,
    ClientSpec,
    Condition,
    EnvironmentFailed,
    EvidenceMissed,
    ProcessExited,
    Program,
    Ready,
    Shape,
    Signal,
    UsageError,
    two_way,
)
from fencepost.events.names import is_client
from fencepost.model.secrets import REDACTED
from fencepost.model.system.apps import MOST_INSTANCES
from fencepost.runs import apps as run_apps
from fencepost.runs.apps import Apps
from fencepost.runtimes.process import runtime as process_runtime
from fencepost.runtimes.process.runtime import ProcessRuntime
from fencepost_kafka.clients.printed import parse
from fencepost_kafka.events import KINDS, ProduceCompleted, ProduceInvoked
from fencepost_plugins.bounce import kill
from fencepost_plugins.pause import pause

pytestmark = pytest.mark.real

TWO = Shape(counts=PAIR.counts, apps={"app": 2})
HEAD = "import os, signal, socket, sys, time\n"
WAITS = 'print("up", flush=True)\nsignal.pause()\n'
UP = Ready(line="up")
Started = Callable[[ProcessRuntime], Apps]


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[ProcessRuntime]:
    """No node is started: programs need none here."""
    made = echo_run(tmp_path / "run", EchoSystem(), TWO, kinds=KINDS)
    made.supervise()
    yield made
    made.close()


@pytest.fixture
def apps(runtime: ProcessRuntime) -> Apps:
    return Apps(runtime, parse, runtime.folder.log_of)


def python(text: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-c", HEAD + text, *words)


def bodies(runtime: ProcessRuntime, kind: type[Struct]) -> list[Struct]:
    return [one.body for one in runtime.events() if isinstance(one.body, kind)]


def test_each_instance_gets_the_words_and_the_environment_of_its_user(
    runtime: ProcessRuntime, apps: Apps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_TEST", "seen")
    text = (
        'print(sys.argv[1:], os.environ["MINE"], os.environ["OF_THE_TEST"], os.getcwd())\n'
        'print(open(os.environ["CONF"]).read())\n'
    )
    apps.start(
        "app",
        python(text + WAITS, "{bootstrap}", "{instance}", "{address}"),
        environment={"MINE": "{slot}", "CONF": "{work}/etc/app.conf"},
        files={"etc/app.conf": "servers={bootstrap};{}"},
        folder=str(tmp_path),
        ready=UP,
    )
    for number, slot in enumerate(runtime.layout.instances("app"), 1):
        seen = runtime.place(slot)
        servers = ",".join(f"{seen.hosts[name]}:9092" for name in ("broker-1", "broker-2"))
        log = runtime.folder.log_of(f"{slot.name}#1").read_text().splitlines()
        assert log[0] == f"{[servers, str(number), seen.address]} {slot.name} seen {tmp_path}"
        assert log[1] == f"servers={servers};{{}}"
    assert len({runtime.place(one).hosts["broker-1"] for one in runtime.layout.instances()}) == 2


def test_it_is_a_target_of_faults_and_starts_again_with_its_program(
    runtime: ProcessRuntime, apps: Apps
) -> None:
    first, second = apps.start("app", python(WAITS), ready=UP)
    struck = kill(first.name).inject(runtime)
    assert struck.receipt.true, struck.receipt.evidence
    assert struck.heal().true
    living = runtime.living(first.slot)
    assert living is not None
    assert living.name == "app-1#2"
    paused = pause(second.name).inject(runtime)
    assert paused.receipt.true, paused.receipt.evidence
    assert paused.heal().true
    ends = [one for one in bodies(runtime, ProcessExited) if isinstance(one, ProcessExited)]
    assert [(one.ended, one.expected) for one in ends] == [("app-1#1", True)]


def test_a_cut_of_one_instance_leaves_the_other_s_link_as_it_was(
    runtime: ProcessRuntime, apps: Apps
) -> None:
    for broker in runtime.layout.of("broker"):
        runtime.start(broker)
    # One connection stays open: a fault of a link that carries nothing has no receipt.
    text = 'host, _, port = sys.argv[1].split(",")[0].partition(":")\n' + (
        "while True:\n"
        "    try:\n"
        "        with socket.create_connection((host, int(port)), 10) as one:\n"
        "            one.settimeout(1)\n"
        "            while True:\n"
        '                one.sendall(bytes.fromhex("00000010001200000000000700066563686f2d31"))\n'
        "                if not one.recv(1024): break\n"
        "                print('answered', flush=True)\n"
        "                time.sleep(0.1)\n"
        "    except OSError: print('silence', flush=True)\n"
        "    time.sleep(0.1)\n"
    )
    apps.start("app", python(text, "{bootstrap}"), ready=Ready(line="answered"))
    receipt = runtime.apply_cut(two_way(["app-1"], ["broker-1"]))
    assert receipt.true, receipt.evidence

    def said(slot: str) -> str:
        return runtime.folder.log_of(f"{slot}#1").read_text()

    cut = said("app-1").count("answered")
    silent = Condition("silence", lambda view: said("app-1").endswith("silence\n" * 2))
    assert advance_by_steps(runtime, silent)
    # One answer may have been on its way.
    assert said("app-1").count("answered") <= cut + 1
    before = said("app-2").count("answered")
    more = Condition("answers", lambda view: said("app-2").count("answered") > before + 2)
    assert advance_by_steps(runtime, more)


def advance_by_steps(runtime: ProcessRuntime, until: Condition, limit_s: float = 20) -> bool:
    """Waits for what no event tells."""
    never = Condition("never", lambda view: False)
    for _ in range(int(limit_s / 0.1)):
        if until.holds(runtime.view):
            return True
        advance(runtime, never, 0.1)
    return False


def test_secrets_are_in_no_event_and_no_log(runtime: ProcessRuntime, apps: Apps) -> None:
    text = (
        'print("connecting with", os.environ["DB_PASSWORD"], sys.argv[1], flush=True)\n'
        'print(\'{"fencepost": "what", "with": "hunter2"}\', flush=True)\n'
    )
    apps.start(
        "app",
        python(text + WAITS, "--token=abcdef"),
        environment={"DB_PASSWORD": "hunter2"},
        files={"app.conf": "password=hunter2"},
        ready=UP,
    )
    runtime.close()
    assert bodies(runtime, EvidenceMissed), "its line was quoted"
    conf = runtime.folder.work_of("app-1#1") / "app.conf"
    assert conf.read_text() == f"password={REDACTED}"
    log = runtime.folder.log_of("app-1#1").read_text()
    assert log.startswith(f"connecting with {REDACTED} --token={REDACTED}")
    kept = [path.read_bytes() for path in runtime.folder.path.rglob("*") if path.is_file()]
    assert not any(b"hunter2" in one or b"abcdef" in one for one in kept)
    started = bodies(runtime, AppStarted)[0]
    assert isinstance(started, AppStarted)
    assert started.argv[-1] == f"--token={REDACTED}"


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (Program(name="app", argv=("/no/such/program",)), "could not be started"),
        (Program(name="app", argv=(os.devnull,)), "could not be started"),
        (
            Program(name="app", argv=python('sys.exit("no configuration")'), ready=UP),
            r"ended before it was ready.*no configuration",
        ),
        (
            Program(name="app", argv=python("signal.pause()"), ready=UP, ready_ms=500),
            "no such line",
        ),
        (
            Program(
                name="app", argv=python("signal.pause()"), ready=Ready(port=8080), ready_ms=500
            ),
            "Connection refused",
        ),
        (
            Program(
                name="app",
                argv=python("signal.pause()"),
                ready=Ready(url="http://{address}:8080/health"),
                ready_ms=500,
            ),
            r"http://127.*:8080/health.*refused",
        ),
    ],
)
def test_one_that_does_not_get_ready_is_said_in_a_sentence(
    apps: Apps, program: Program, says: str
) -> None:
    with pytest.raises(EnvironmentFailed, match=says):
        apps.run(program)


SERVES = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class One(BaseHTTPRequestHandler):
    def do_GET(self):
        good = not os.path.exists(sys.argv[2])
        self.send_response(200 if good else 503)
        self.end_headers()
HTTPServer((sys.argv[1], 8080), One).serve_forever()
"""


def test_it_is_asked_at_its_url_whether_it_works_again(
    runtime: ProcessRuntime, apps: Apps, tmp_path: Path
) -> None:
    ill = tmp_path / "ill"
    apps.start(
        "app",
        python(SERVES, "{address}", str(ill)),
        ready=Ready(url="http://{address}:8080/"),
        works_again_ms=700,
    )
    apps.check_recovery()
    ill.touch()
    apps.check_recovery()
    asked = [one for one in bodies(runtime, AppWorksAgain) if isinstance(one, AppWorksAgain)]
    assert [one.works for one in asked] == [True, True, False, False]
    assert all("503" in one.why and one.took_ms >= 700 for one in asked[2:3])


def test_one_that_ends_by_itself_is_started_again_and_ends_no_run(
    runtime: ProcessRuntime, apps: Apps
) -> None:
    text = 'print("up", flush=True)\nsys.exit(3 if sys.argv[1] == "1" else 0)\n'
    apps.start("app", python(text, "{instance}"), may_end=True)
    again = Condition("its next", lambda view: view.newest["app-1"] == "app-1#2")
    assert advance(runtime, again)
    ends = [one for one in bodies(runtime, ProcessExited) if isinstance(one, ProcessExited)]
    found = {(one.ended, one.exit_code, one.expected) for one in ends}
    assert {("app-1#1", 3, False), ("app-2#1", 0, True)} <= found
    assert runtime.view.newest["app-2"] == "app-2#1", "it was done"


def test_one_that_ignores_sigterm_is_killed_and_named(
    runtime: ProcessRuntime, apps: Apps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_apps, "END_LIMIT_MS", 500)
    text = "signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[1] == '1' else signal.SIG_DFL)"
    apps.start("app", python(f"{text}\n{WAITS}", "{instance}"), ready=UP)
    apps.stop()
    assert apps.killed == ["app-1#1"]
    assert all(runtime.living(slot) is None for slot in runtime.layout.instances())


def test_one_that_prints_without_end_fills_no_disk(
    runtime: ProcessRuntime, apps: Apps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_runtime, "MOST_LOG_BYTES", 1 << 20)
    text = 'for n in range(200_000): print(n, "x" * 93)\n'
    apps.start("app", python(text + WAITS), ready=UP)
    log = runtime.folder.log_of("app-1#1")
    shown = log.stat()
    assert shown.st_size > 19_000_000
    assert shown.st_blocks * 512 < 4_000_000
    runtime.close()
    lines = log.read_text().splitlines()
    assert (lines[0][:3], lines[-1]) == ("0 x", "up")
    assert sum("fencepost left out" in one for one in lines) == 1
    assert not any("\0" in one for one in lines)
    assert log.stat().st_size < 2_500_000


def test_lines_in_the_published_form_are_events_of_the_program(
    runtime: ProcessRuntime, apps: Apps
) -> None:
    text = (
        "import json\n"
        "def say(kind, **words):\n"
        '    line = {"fencepost": kind, "topic": "bills", "partition": 0, "at": time.time()}\n'
        "    print(json.dumps({**line, **words}), flush=True)\n"
        'say("produce", op="b-1")\n'
        'say("produced", op="b-1", outcome="ok", offset=7)\n'
        'say("produced", op="b-2", outcome="ok")\n'
        'print(\'{"not": "ours"}\')\n'
    )
    apps.start("app", python(text + WAITS), ready=UP)
    by = {type(one.body): one for one in runtime.events() if one.process == "app-1#1"}
    invoked, completed = by[ProduceInvoked], by[ProduceCompleted]
    assert isinstance(completed.body, ProduceCompleted)
    assert (completed.body.operation, completed.body.offset) == ("b-1", 7)
    assert invoked.at_ns <= completed.at_ns <= runtime.now_ns()
    missed = by[EvidenceMissed].body
    assert isinstance(missed, EvidenceMissed)
    assert "b-2" in missed.what


def test_an_app_without_a_slot_or_a_program_is_refused(runtime: ProcessRuntime, apps: Apps) -> None:
    with pytest.raises(UsageError, match="bpp"):
        apps.start("bpp", python(WAITS))
    with pytest.raises(UsageError, match="no program was given"):
        runtime.start(runtime.layout.instances("app")[0])
    with pytest.raises(UsageError, match="app-3"):
        apps["app-3"]
    assert MOST_INSTANCES < 250


def test_a_client_of_ours_may_work_in_such_a_slot(runtime: ProcessRuntime) -> None:
    for broker in runtime.layout.of("broker"):
        runtime.start(broker)
    session = runtime.client(ClientSpec("talker", "echo", slot="app-2"))
    assert session.process == "app-2/talker#1"
    assert is_client(session.process)
    assert advance(runtime, answered(session.process))
    # Behind the links of its own slot: a cut of the other one is nothing to it.
    before = runtime.view.latest[session.process, "echo.answered"]
    assert runtime.apply_cut(two_way(["app-1"], ["broker-1", "broker-2"])).evidence
    later = Condition(
        "another", lambda view: view.latest[session.process, "echo.answered"] != before
    )
    assert advance(runtime, later)
    with pytest.raises(UsageError, match="app-3"):
        runtime.client(ClientSpec("talker", "echo", slot="app-3"))


def test_what_it_started_ends_with_it(runtime: ProcessRuntime, apps: Apps) -> None:
    text = "child = os.fork()\nif child == 0: time.sleep(600)\nprint('child', child, flush=True)\n"
    (first, _) = apps.start("app", python(text + WAITS), ready=UP)
    log = runtime.folder.log_of("app-1#1").read_text()
    child = int(log.split("child ")[1].split()[0])
    living = runtime.living(first.slot)
    assert living is not None
    runtime.signal(living, Signal.KILL)
    gone = Condition("its child to end", lambda view: not os.path.exists(f"/proc/{child}/exe"))
    assert advance_by_steps(runtime, gone)
