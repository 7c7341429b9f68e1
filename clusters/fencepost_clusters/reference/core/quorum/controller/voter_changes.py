"""Decides about adding a controller to the voters, or removing one, one change at a time.

A new voter must first have caught up as an observer. A change is refused while an earlier change is
not committed, or while no record of this controller's epoch is. So any two majorities share a
voter.
"""

from __future__ import annotations

from typing import Final

from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.node.settings import CONTROLLER_LISTENER
from fencepost_clusters.reference.core.quorum.controller.decision_context import Quorum
from fencepost_clusters.reference.core.quorum.controller.policies import RegistrationPolicies
from fencepost_clusters.reference.core.quorum.raft.electorate import voters_record
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error

CAUGHT_UP_WITHIN: Final = 100
"""How many committed records a new voter may lack."""


Outcome = tuple[tuple[r.Record, ...], Error, str | None]


def add(
    quorum: Quorum, image: Image, asked: a.AddRaftVoterRequest, policies: RegistrationPolicies
) -> Outcome:
    """The decision about a request to add a voter."""
    node = asked.voter_id
    address = next(
        ((one.host, one.port) for one in asked.listeners if one.name == CONTROLLER_LISTENER), None
    )
    if node < 0 or address is None:
        return _refused(Error.INVALID_REQUEST, "a voter has an id and a controller listener")
    if policies.id_clashes(node, image.brokers):
        return _refused(Error.INVALID_REQUEST, f"{node} is a broker's id")
    if node in quorum.voters:
        return _refused(Error.DUPLICATE_VOTER, f"{node} votes already")
    # Two changes at once could leave two majorities without a common voter. From {1, 2, 3, 4}, one
    # leader adds 5, and its successor removes 1: {1, 4, 5} is a majority after the first change,
    # and {2, 3} after the second. The record of this epoch is needed since an uncommitted change of
    # a former leader may still be in the log of a voter that could win.
    if not quorum.settled:
        return _refused(Error.REQUEST_TIMED_OUT, "an earlier change is not committed yet")
    # A voter that lacks much of the log counts for the majority, but cannot hold it: until it has
    # caught up, one failure more would stop the quorum.
    fetched = quorum.observed.get(node)
    if fetched is None or fetched.offset < quorum.high_watermark - CAUGHT_UP_WITHIN:
        return _refused(Error.REQUEST_TIMED_OUT, f"{node} has not caught up")
    return (voters_record({**quorum.voters, node: address}),), Error.NONE, None


def remove(quorum: Quorum, asked: a.RemoveRaftVoterRequest) -> Outcome:
    """The decision about a request to remove a voter."""
    if asked.voter_id not in quorum.voters:
        return _refused(Error.VOTER_NOT_FOUND, f"{asked.voter_id} does not vote")
    if len(quorum.voters) == 1:
        return _refused(Error.INVALID_REQUEST, "the last voter stays")
    if not quorum.settled:
        return _refused(Error.REQUEST_TIMED_OUT, "an earlier change is not committed yet")
    left = {node: at for node, at in quorum.voters.items() if node != asked.voter_id}
    return (voters_record(left),), Error.NONE, None


def _refused(error: Error, why: str) -> Outcome:
    return (), error, why
