"""What the documentation says of the clauses that are judged on Apache Kafka."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from fencepost import Promise
from fencepost_clusters.apache_kafka.plugin import DECLARED

ROOT = Path(__file__).parent.parent.parent
KINDS = ("REG-", "QC-", "RP-")
A_CLAUSE = re.compile(r"\b(KR|REG|QC|RP)-\d")


def test_the_documentation_counts_the_clauses_that_are_judged_on_apache_kafka() -> None:
    counts: Counter[str] = Counter()
    for one in DECLARED.applicability:
        if one.plane == "kraft" and one.clause.startswith(KINDS):
            replaced = one.promise is Promise.CHANGED and not A_CLAUSE.search(one.how)
            counts["unjudged" if replaced else one.promise] += 1
    judged, unjudged, absent = (
        counts["same"] + counts["witnessed"] + counts["changed"],
        counts["unjudged"],
        counts["not-applicable"],
    )
    assert counts.total() == 80
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"{judged} are judged on Apache Kafka" in readme
    assert f"{unjudged} are other promises there that no clause judges, and {absent}" in readme
    verdicts = (ROOT / "docs/explanation/verdicts.md").read_text()
    assert f"the quorum and replication {judged}, as they are" in verdicts
    assert f"{unjudged} are other promises that no clause judges, {absent} are" in verdicts
