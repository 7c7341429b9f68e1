"""The runs of Apache Kafka that are kept with known findings, and the cause that each gives.

As of planted defects, the cause is written down from the finding alone, by what its text says.
"""

from __future__ import annotations

import gzip
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from fencepost import FencepostError, KnownFinding
from fencepost.reporting import Broken, Promises, RunFolder, Verdict, judge_folder
from planted.causes import CONTROLLER, LEADER, NOTHING, PARTITION, STATED, WENT_OUT
from planted.corpus import Planted

_ROOT = "fencepost_clusters.apache_kafka"
_BULK = shutil.ignore_patterns("data", "logs", "columns", "work")

KEPT: Mapping[str, Sequence[str]] = {
    "refused-duplicate": (NOTHING,),
    "refused-duplicate-counts": (NOTHING,),
    "refused-duplicate-follows": (PARTITION, LEADER),
    "forgotten-isr-request": (NOTHING,),
    "no-heartbeat-no-fencing": (CONTROLLER,),
    "superseded-broker-leads": ("first broker",),
    "superseded-broker-stays-out": (WENT_OUT,),
    "no-broker-epochs": (STATED,),
    "bounce-unseen": (STATED,),
    "deposed-leader-refuses": (PARTITION, LEADER),
    "deposed-leader-lacks-epoch": (PARTITION, LEADER),
    "no-check-quorum": (CONTROLLER,),
    "isr-begins-epoch": (WENT_OUT,),
    "no-pre-vote": (NOTHING,),
    "resigned-leader-acts": (CONTROLLER,),
    "deleted-topic-keeps-settings": (NOTHING,),
    "config-clears-eligible-leaders": (PARTITION,),
    "removed-replica-stays-eligible": (PARTITION,),
    "cleared-leader-blocks-registration": (NOTHING,),
    "cleared-leader-keeps-broker-out": (STATED,),
    "removed-voter-ends-leader": (NOTHING,),
}
"""Each finding, and what may be the cause of its own clauses: any of these is right."""

WAKES: Mapping[str, Sequence[str]] = {"forgotten-isr-request": (PARTITION, LEADER)}
"""What may be the cause of what follows from a finding, if that is another one: here the leader
that lacks what was acknowledged was elected later."""
_ELECTED = ("RP-06", "RP-13")
"""The clauses that such an election breaks."""


def kept_runs(findings: Sequence[KnownFinding], promises: Promises, out: Path) -> Iterator[Planted]:
    """Each finding's run, unpacked below `out`, and the clauses of which its first violation is
    this finding's."""
    for finding in findings:
        if finding.id not in KEPT:
            continue
        source = Path(str(files(_ROOT))) / finding.history
        path = out / source.parent.name
        if not path.exists():
            shutil.copytree(source.parent, path)
            (path / source.stem).write_bytes(gzip.decompress(source.read_bytes()))
        verdicts = judge_folder(RunFolder(path), promises)[0].verdicts
        yield Planted(path.name, finding.system, finding.id, _own(finding, verdicts), "kept")


def recorded_runs(
    findings: Sequence[KnownFinding], promises: Promises, root: Path, out: Path
) -> Iterator[Planted]:
    """The runs below `root` that show known findings, copied below `out`: each finding of a run,
    and the clauses of which its first violation is this finding's."""
    for history in sorted(root.rglob("history.ndjson")):
        source = history.parent
        try:
            verdicts = judge_folder(RunFolder(source), promises)[0].verdicts
        except FencepostError as error:
            print(f"{source} is left out: {error}", file=sys.stderr)
            continue
        for finding in findings:
            own = _own(finding, verdicts) if finding.id in KEPT else ()
            if own:
                shutil.copytree(source, out / source.name, ignore=_BULK, dirs_exist_ok=True)
                yield Planted(source.name, finding.system, finding.id, own, "recorded")


def _own(finding: KnownFinding, verdicts: Mapping[str, Verdict]) -> tuple[str, ...]:
    """The clauses of which the first violation is this finding's."""
    return tuple(
        clause
        for clause, verdict in verdicts.items()
        if verdict.violations and verdict.violations[0].known == finding.id
    )


def wanted_of(
    finding: KnownFinding, clause: str, verdicts: Mapping[str, Verdict]
) -> tuple[Sequence[str], Broken]:
    """What may be the cause of a clause's first violation, and at which violation that is looked
    for: a reading at the end comes long after the election that lost what it lacks."""
    first = verdicts[clause].violations[0]
    if clause in finding.clauses or finding.wake is None:
        return KEPT[finding.id], first
    wanted = WAKES.get(finding.id, KEPT[finding.id])
    about = first.facts.get("partition")
    elections = [
        one
        for which in _ELECTED
        if which in verdicts
        for one in verdicts[which].violations
        if one.facts.get("partition") == about
    ]
    return wanted, elections[0] if elections else first
