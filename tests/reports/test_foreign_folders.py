"""A run folder from anybody: read within bounds, and refused in a sentence."""

from __future__ import annotations

import hashlib
import json
import os
import random  # noqa: TID251 - hypothesis draws it
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from foreign_folders import Foreign
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from fencepost.history import files, merge
from fencepost.judging.columnar import TABLES
from fencepost.judging.folder import judge_folder
from fencepost.model.errors import UsageError
from fencepost.reporting import RunFolder
from fencepost.runs import replay


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    return Foreign.recorded(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def folder(foreign: Foreign, tmp_path: Path) -> Path:
    """The recorded run, unchanged."""
    for name, content in foreign.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(draw=st.randoms(use_true_random=False))
def test_any_changed_folder_is_read_or_refused_in_a_sentence(
    foreign: Foreign, draw: random.Random
) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made, "run")
        folder.mkdir()
        foreign.write(folder, draw)
        foreign.read(folder)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(draw=st.randoms(use_true_random=False))
def test_tables_with_a_digest_that_fits_are_not_believed_for_it(
    foreign: Foreign, draw: random.Random
) -> None:
    """The digest is of the same folder, so that anybody may have written it."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made, "run")
        folder.mkdir()
        foreign.write_tables(folder, draw)
        foreign.read(folder, Path(made, "out"))


def to_folder(path: Path) -> None:
    path.mkdir()


def to_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("name", ["run.json", "history.ndjson"])
@pytest.mark.parametrize(
    ("put", "says"),
    [
        (to_folder, "is a folder, and not a file"),
        (os.mkfifo, "is a pipe, and not a file"),
        (to_link, "is not read: it is a link, or lies behind one"),
        (to_zero, "is not read: it is a link, or lies behind one"),
    ],
)
def test_what_is_no_file_is_refused(
    foreign: Foreign, folder: Path, name: str, put: Callable[[Path], None], says: str
) -> None:
    (folder / name).unlink()
    put(folder / name)
    with pytest.raises(UsageError, match=f"{name} {says}"):
        judge_folder(RunFolder(folder), foreign.promises)


def test_events_behind_a_link_are_not_read(foreign: Foreign, folder: Path) -> None:
    (folder / "history.ndjson").unlink()
    (folder / "events").rename(folder.with_name("elsewhere"))
    (folder / "events").symlink_to(folder.with_name("elsewhere"))
    with pytest.raises(UsageError, match="events is not read: it is a link"):
        judge_folder(RunFolder(folder), foreign.promises)


def test_nothing_is_written_through_a_link(foreign: Foreign, folder: Path) -> None:
    outside = folder.with_name("precious")
    outside.write_text("kept")
    (folder / "history.ndjson").unlink()
    for name in ("history.ndjson", "damage.json", "verdicts.json", "judged.json"):
        (folder / f".{name}.{os.getpid()}").symlink_to(outside)
    judge_folder(RunFolder(folder), foreign.promises)
    assert outside.read_text() == "kept"


def test_a_long_line_is_not_read_to_its_end(foreign: Foreign, folder: Path) -> None:
    run = RunFolder(folder)
    with run.history.open("ab") as history:
        history.truncate(run.history.stat().st_size + (600 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    judgement, end = judge_folder(run, foreign.promises, keep=False)
    assert not end.complete
    assert f"is read no further: more than {files.MOST_LINE_BYTES} bytes are in line" in end.lacks
    assert set(judgement.verdicts) == set(foreign.promises.clauses)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("run.json", b'"events": 3', b'"events": 4', "run.json has events 4; this Fencepost knows"),
        ("run.json", b'"layout": 2', b'"layout": 0', "run.json has layout 0; this Fencepost knows"),
        (
            "run.json",
            b'"name": "broker-1"',
            b'"name": "../../etc"',
            r"the name '../../etc' of a slot",
        ),
        ("run.json", b'"clock_origin_ns": 0', b'"clock_origin_ns": -5', "clock_origin_ns"),
        ("run.json", b"2026-01-01T", b"9999-99-99T", "cannot be read"),
        (
            "run.json",
            b'"broker": 3',
            b'"broker": 1000000000',
            "broker has the number 1000000000, not",
        ),
        ("run.json", b'"seed": ', b'"seed": 1' + b"0" * 40, "an integer has 13. bits"),
        (
            "run.json",
            b'"seed": ',
            b'"seed": 1' + b"0" * 9000,
            "Integer value out of range",
        ),
        ("run.json", b'"settings": {}', b'"x": ' + b"[" * 1_000_000, "nested too deeply"),
        ("run.json", b'"fenced"', b'"\xff"', "not UTF-8"),
    ],
)
def test_what_is_wrong_with_a_run_is_said_in_one_sentence(
    folder: Path, name: str, old: bytes, new: bytes, says: str
) -> None:
    path = folder / name
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    with pytest.raises(UsageError, match=says) as refused:
        RunFolder(folder).info()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"at_ns":', b'"at_ns":-'),
        (b'"at_ns":', b'"at_ns":' + b"9" * 18),
        (b'"node_seq":', b'"node_seq":-1'),
        (b'"offset":1', b'"offset":1' + b"0" * 30),
        (b"STALE_BROKER", b"\xff\xfe"),
        (b'"body":', b'"body":' + b"[" * 100_000),
    ],
)
def test_an_absurd_event_is_damage(foreign: Foreign, folder: Path, old: bytes, new: bytes) -> None:
    run = RunFolder(folder)
    content = run.history.read_bytes()
    at = content.rindex(old)
    run.history.write_bytes(content[:at] + new + content[at + len(old) :])
    reading = merge.read(run, merge.Codec(foreign.promises.kinds))
    assert list(reading)
    assert any("is not an event" in one for one in reading.end.damage)


def test_a_run_with_a_secret_is_not_replayed_without_it(foreign: Foreign, folder: Path) -> None:
    path = folder / "run.json"
    secret = b'"settings": {"sasl.password": "<redacted>"}'
    path.write_bytes(path.read_bytes().replace(b'"settings": {}', secret))
    with pytest.raises(UsageError, match=r"setting sasl\.password of this run is a secret"):
        replay.read(RunFolder(folder), foreign.plugins)


def test_a_spare_of_an_unknown_role_is_refused(foreign: Foreign, folder: Path) -> None:
    path = folder / "run.json"
    changed = path.read_bytes().replace(b'"role": "broker"', b'"role": "brokr"', 1)
    at = changed.index(b"brokr")
    path.write_bytes(changed[:at] + changed[at:].replace(b'"spare": false', b'"spare": true', 1))
    with pytest.raises(UsageError, match="no role named 'brokr'; did you mean 'broker'"):
        replay.read(RunFolder(folder), foreign.plugins)


def other_schema(path: Path) -> None:
    parquet.write_table(pa.table({"x": [1, 2, 3]}), path)


def many_columns(path: Path) -> None:
    parquet.write_table(pa.table({f"c{n}": [n] for n in range(5000)}), path)


def no_footer(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def odd_values(path: Path) -> None:
    schema = parquet.read_schema(path)
    columns = [pa.array([_odd(one.type, n) for n in range(3)], one.type) for one in schema]
    parquet.write_table(pa.table(columns, schema=schema), path)


def _odd(kind: pa.DataType, number: int) -> object:
    """The least, a middle and the greatest value of a column."""
    if pa.types.is_integer(kind):
        most = 1 << kind.bit_width - 1
        return (-most, 0, most - 1)[number]
    if pa.types.is_list(kind):
        return [_odd(kind.value_type, number)] * number
    if pa.types.is_boolean(kind):
        return number == 1
    return ("", "x", "broker-1#1")[number] if pa.types.is_string(kind) else None


def broken_pages(path: Path) -> None:
    content = path.read_bytes()
    middle = len(content) // 3
    path.write_bytes(content[:4] + os.urandom(middle) + content[4 + middle :])


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    "damage", [other_schema, many_columns, no_footer, odd_values, broken_pages]
)
def test_columns_with_a_digest_that_fits_are_not_believed_for_it(
    foreign: Foreign, folder: Path, tmp_path: Path, table: str, damage: Callable[[Path], None]
) -> None:
    """The digest is of the same folder, so that anybody may have written it."""
    path = folder / "columns" / f"{table}.parquet"
    damage(path)
    judged = json.loads((folder / "judged.json").read_bytes())
    judged["columns"][table] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "judged.json").write_text(json.dumps(judged))
    foreign.read(folder)


def test_an_absurd_length_makes_no_endless_page(
    foreign: Foreign, folder: Path, tmp_path: Path
) -> None:
    run = RunFolder(folder)
    *lines, last = run.history.read_bytes().splitlines(keepends=True)
    event = merge.Codec(foreign.promises.kinds).decode(last)
    late = last.replace(b'"at_ns":%d' % event.at_ns, b'"at_ns":%d' % (1 << 62))
    assert late != last
    run.history.write_bytes(b"".join([*lines, late]))
    assert foreign.read(folder, tmp_path / "out") == ""
    (page,) = (tmp_path / "out").glob("report.html")
    assert page.stat().st_size < 1_000_000
