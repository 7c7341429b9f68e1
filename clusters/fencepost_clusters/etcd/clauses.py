"""The promises of etcd as clauses: one sentence each, from its documents."""

from __future__ import annotations

from fencepost import Clause

PLANE = "raft"
_API = "etcd: API guarantees"
_RAFT = "Raft, section 5.2"
_LOCKS = "Kleppmann, How to do distributed locking"

CLAUSES = (
    Clause("ETCD-01", _RAFT, (PLANE,), "At most one member leads in a term."),
    Clause("ETCD-02", _API, (PLANE,), "An acknowledged write is never lost."),
    Clause(
        "ETCD-03", _API, (PLANE,), "Writes and linearizable reads of a key are linearizable."
    ),
    Clause(
        "ETCD-04", _API, (PLANE,),
        "A key that is attached to a lease is gone within a bound after the lease ran out.",
    ),
    Clause("ETCD-05", _LOCKS, (PLANE,), "The fencing token of a lock grows with every holder."),
    Clause(
        "ETCD-06", _LOCKS, (PLANE,),
        "A store that a lock guards takes no write of a holder after that of a newer one.",
        defect="the store accepts writes with old tokens",
    ),
)  # fmt: skip
