"""The variants of the model: the check that each leaves out, as `Broken` names it."""

from __future__ import annotations

VARIANTS = (
    "a leader from outside the ISR",
    "an election does not raise the epoch",
    "a follower does not truncate",
    "a follower truncates to its high watermark",
    "a follower that diverges drops its whole log",
    "the leader counts itself only",
    "any two replicas count",
    "a former leader commits alone",
    "a shrink counts before it is stored",
    "a replica being added is not counted",
    "a request of an old epoch is accepted",
    "a bounced broker is accepted",
    "a new process keeps its place in the ISR",
    "a follower joins the ISR behind",
    "a follower joins the ISR before the leader's begin",
    "a new leader commits its whole log",
    "fetches of any epoch count",
    "acks=all is answered at once",
    "what waits is acknowledged on stepping down",
)
