"""`--count`, `--setting` and `--defects` mean the same for each command that starts clusters."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from warm_start import fencepost

from fencepost import Shape, UsageError
from fencepost.history.run_folder import RunFolder, RunInfo
from fencepost.model.system.shape import options_of, shape_of
from fencepost.testing.settings import Settings

pytestmark = pytest.mark.tool

SETTING = ("min.insync.replicas", "1")
SHAPE = ("--count", "broker=4", "--setting", "=".join(SETTING), "--defects", "serves-without-lease")
SIMULATED = ("--runtime", "simulated", "--seed", "3")
SHORT = (*SIMULATED, "--runs", "1", "--minutes", "0.05", "--keep")
TEST = """
def test_it(cluster, clients):
    cluster.eventually(clients.produce("orders", count=5).settled)
"""
OF_ITS_OWN = """
import pytest
from fencepost import Shape

@pytest.fixture
def fencepost_shape():
    return Shape(counts={"broker": 3}, settings={"log.segment.bytes": "32768"})
"""


def runs(folder: Path) -> list[RunInfo]:
    """What each run below a folder recorded of itself."""
    return [RunFolder(one.parent).info() for one in sorted(folder.glob("**/run.json"))]


@pytest.mark.parametrize(
    "words",
    [
        ("run", "test_it.py", *SIMULATED),
        ("run", "test_it.py", *SIMULATED, "--json", "--", "-n", "1"),
        ("conformance", "test_it.py", *SIMULATED),
        ("soak", *SHORT),
    ],
    ids=["run", "xdist", "conformance", "soak"],
)
def test_the_clusters_of_a_command_have_the_shape(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    command, *rest = words
    words = (command, *SHAPE, "--out", "out", *rest)
    ended = fencepost(*words, folder=tmp_path)
    assert ended.returncode in (0, 1, 3), ended.stderr
    (info,) = runs(tmp_path / "out")
    assert info.counts["broker"] == 4
    assert info.settings == dict([SETTING])
    assert info.defects == ("serves-without-lease",)


def test_all_systems_of_a_comparison_have_the_shape(tmp_path: Path) -> None:
    systems = ("--system", "reference/legacy", "--system", "reference/classic")
    shape = ("--count", "broker=4", "--setting", "=".join(SETTING))
    words = ("compare", *systems, *shape, "--out", "out", *SHORT)
    ended = fencepost(*words, folder=tmp_path)
    assert ended.returncode in (0, 1, 3), ended.stderr
    found = runs(tmp_path / "out")
    assert {info.system for info in found} == {"reference/legacy", "reference/classic"}
    assert {info.counts["broker"] for info in found} == {4}
    assert {info.settings["min.insync.replicas"] for info in found} == {"1"}


def test_a_replay_repeats_the_shape_unless_an_option_says_another(tmp_path: Path) -> None:
    words = ("soak", *SHAPE, "--out", "out", *SHORT)
    assert fencepost(*words, folder=tmp_path).returncode in (0, 1, 3)
    (recorded,) = (tmp_path / "out").glob("**/run.json")
    replay = ("replay", str(recorded.parent), "--json", "--out")
    once = fencepost(*replay, "again", folder=tmp_path)
    assert once.returncode in (0, 1, 3), once.stderr
    said = json.loads(once.stdout)
    assert said["exit_code"] == once.returncode
    assert said["reason"].endswith(f": exit code {once.returncode}")
    words = (*replay, "other", "--count", "controller=1", "--defects", "votes-twice")
    fencepost(*words, folder=tmp_path)
    (again,), (other,) = runs(tmp_path / "again"), runs(tmp_path / "other")
    (first,) = runs(tmp_path / "out")
    assert (again.counts, again.settings, again.defects) == (
        *(first.counts, first.settings, first.defects),
    )
    assert other.counts == {**first.counts, "controller": 1}
    assert (other.settings, other.defects) == (first.settings, ("votes-twice",))
    # The folder that is kept with a known finding has a packed history, or none.
    for name in ("history.ndjson", "verdicts.json", "judged.json"):
        (recorded.parent / name).unlink()
    shutil.rmtree(recorded.parent / "events", ignore_errors=True)
    kept = fencepost(*replay, "kept", folder=tmp_path)
    assert kept.returncode in (0, 1, 3), kept.stderr
    assert json.loads(kept.stdout)["then"] == {}


def test_what_a_test_says_of_its_shape_is_stronger(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "conftest.py").write_text(OF_ITS_OWN)
    count = ("--count", "broker=5", "--count", "controller=1")
    words = (*count, "--setting", "log.segment.bytes=65536", "--setting", "=".join(SETTING))
    words = ("run", "test_it.py", *SIMULATED, *words, "--out", "out")
    ended = fencepost(*words, folder=tmp_path)
    assert ended.returncode == 0, ended.stdout
    (info,) = runs(tmp_path / "out")
    assert (info.counts["broker"], info.counts["controller"]) == (3, 1)
    assert info.settings == {"log.segment.bytes": "32768", **dict([SETTING])}


def test_the_line_that_runs_a_test_again_names_the_shape_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(cluster): assert 0")
    words = ("run", "test_it.py", *SIMULATED, *SHAPE, "--json")
    ended = fencepost(*words, folder=tmp_path)
    (test,) = json.loads(ended.stdout)["tests"]
    assert "--fencepost-count=broker=4 --fencepost-setting=min.insync.replicas=1" in test["again"]
    shape = Shape(settings={"sasl.password": "a secret"})
    again = Settings("apache/kraft", "process", 1, tmp_path, shape).replay("test_it.py")
    assert "sasl.password" in again
    assert "a secret" not in again


@pytest.mark.parametrize(
    "command",
    [
        ("run",),
        ("soak",),
        ("conformance",),
        ("compare",),
        ("cluster", "up"),
    ],
    ids=lambda words: words[-1],
)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--count", "brokr=3"), "did you mean 'broker'?"),
        (("--count", "broker=many"), "a count is NAME=N with a number, not 'broker=many'"),
        (("--setting", "lease"), "a setting is NAME=VALUE, not 'lease'"),
        (("--defects", "serves-without-leas"), "did you mean 'serves-without-lease'?"),
        (("--system", "apache/kraft", "--defects", "x"), "apache/kraft has no defects"),
        (("--setting", "nope=1"), "reference/quorum has no setting 'nope'"),
        (("--count", "broker=100000"), "a cluster has 1 to 400 brokers"),
        (
            ("--system", "apache/kraft", "--setting", "broker.session.timeout.ms=9e3"),
            "broker.session.timeout.ms must be a whole number from 1 to 2147483647, not '9e3'",
        ),
        (
            ("--system", "apache/kraft", "--setting", "log.segment.bytes=1"),
            "Kafka has segments of at least 1048576 bytes, and log.segment.bytes is 1",
        ),
        (
            ("--system", "etcd/cluster", "--setting", "election-timeout=abc"),
            "election-timeout must be a whole number from 1 to 50000, not 'abc'",
        ),
    ],
)
def test_a_shape_that_the_system_does_not_have_is_refused(
    command: tuple[str, ...], words: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    if command[0] == "compare":
        first = () if "--system" in words else ("--system", "reference/quorum")
        words = (*words, *first, "--system", "reference/legacy")
    words = (*command, *words, "--runtime", "simulated")
    ended = fencepost(*words, folder=tmp_path)
    assert ended.returncode == 2, ended.stderr
    (said,) = [line for line in ended.stderr.splitlines() if line.startswith("fencepost: ")]
    assert says in said
    assert "Traceback" not in ended.stderr
    assert not list(tmp_path.glob("**/run.json"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("soak", "--count", "broker=200"), "has slots 1 to 250: take fewer nodes, or the"),
        (("conformance", "--runtime", "process", "--count", "broker=200"), "has slots 1 to 250"),
        (
            ("soak", "--system", "apache/kraft", "--runtime", "simulated"),
            "apache/kraft runs on process and docker, and not on simulated",
        ),
        (
            ("soak", "--system", "reference/quorum", *SIMULATED, "--security", "SASL_SSL"),
            "reference/quorum cannot be secured: leave out the security 'SASL_SSL'",
        ),
        (
            ("soak", "--system", "apache/kraft", "--security", "SASL_SLL"),
            "no security of apache/kraft named 'SASL_SLL'; did you mean 'SASL_SSL'?",
        ),
        (
            ("soak", "--system", "apache/zookeeper@3.9.2", "--security", "SASL_SSL"),
            "apache/zookeeper@3.9.2 cannot be secured: leave out the security 'SASL_SSL'",
        ),
    ],
    ids=["soak", "conformance", "kraft", "open-only", "misspelt", "zookeeper"],
)
def test_what_a_runtime_does_not_have_is_refused_before_the_first_run(
    words: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    ended = fencepost(*words, folder=tmp_path)
    assert ended.returncode == 2, ended.stderr
    assert says in ended.stderr
    assert not list(tmp_path.glob("**/run.json"))


def test_options_make_a_shape_and_a_shape_options() -> None:
    shape = Shape({"broker": 4}, {"a": "b=c,d"}, ("x", "y"), security="SASL_SSL")
    options = list(options_of(shape))
    given = {name: [v for n, v in options if n == name] for name in ("count", "setting", "defects")}
    security = dict(options)["security"]
    assert shape_of(given["count"], given["setting"], given["defects"], security) == shape


def test_a_security_of_a_test_is_stronger_than_that_of_its_session() -> None:
    mine, everybodys = Shape(security="SSL"), Shape(security="SASL_SSL")
    assert mine.over(everybodys).security == "SSL"
    assert Shape().over(everybodys).security == "SASL_SSL"


@pytest.mark.parametrize("count", ["=3", "broker", "broker=", "broker=-1", "broker=" + "9" * 20])
def test_a_count_that_is_none_is_refused(count: str) -> None:
    with pytest.raises(UsageError, match="a count is NAME=N"):
        shape_of([count])


def test_a_name_that_is_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="the count broker is given twice"):
        shape_of(["broker=3", "controller=1", "broker=4"])
    with pytest.raises(UsageError, match="the setting a is given twice"):
        shape_of(None, ["a=1", "a=1"])
