"""Requests for state changes of this broker's replicas (the design's state-change listener).

A request is a persistent znode, so one for a broker that is down waits for it. A broker carries its
requests out in their order, and deletes each afterwards. A partition may have been changed again
since a request was made, so what is carried out follows the partition as it is now.
"""

from __future__ import annotations

from typing import Protocol, final

from fencepost_clusters.reference.classic.core import writes, znodes
from fencepost_clusters.reference.classic.core.known import Known
from fencepost_clusters.reference.classic.core.policies import ClassicPolicies
from fencepost_clusters.reference.classic.core.znodes import StateChange, StateRequest
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.replication.replica import Key
from fencepost_clusters.reference.over_zookeeper.core.contents import BadZnode, decode
from fencepost_clusters.reference.over_zookeeper.core.session import Task, certain
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import StateChangeCarriedOut, ZnodeUnreadable


class Hosting(Protocol):
    """What a broker does with its replicas."""

    def reread(self, name: str, index: int) -> Task:
        """Reads a partition again, and adopts it."""
        ...

    def host(self, key: Key) -> None:
        """Starts a replica of a partition to which this broker was assigned."""
        ...

    def remove(self, name: str, key: Key) -> None:
        """Stops a replica, and deletes its log."""
        ...


@final
class StateChanges:
    """See the module."""

    def __init__(
        self, known: Known, hosting: Hosting, policies: ClassicPolicies, out: Outbox
    ) -> None:
        self._known = known
        self._hosting = hosting
        self._policies = policies
        self._out = out

    def listen(self, name: str, index: int) -> Task:
        """Reads and carries out the requests to this broker for a partition, and watches for the
        next ones. Raises Disconnected."""
        topic_id = self._known.image.topics.get(name)
        path = znodes.state(name, index, self._known.me)
        if topic_id is None:
            return
        key = (topic_id, index)
        listed = certain((yield zk.GetChildren(path, watch=True)))
        if not isinstance(listed, zk.Children):
            # Children of a missing znode cannot be watched, so its creation is. It may come between
            # the two requests, hence the second list.
            found = certain((yield zk.Exists(path, watch=True)))
            if not isinstance(found, zk.Found) or found.stat is None:
                return  # not a replica, so far
            listed = certain((yield zk.GetChildren(path, watch=True)))
        names = listed.names if isinstance(listed, zk.Children) else ()
        # ZooKeeper's numbers have leading zeros, so the order of the names is that of the requests.
        for one in sorted(names):
            yield from self._carry_out(name, key, f"{path}/{one}")
        partition = self._known.partition(key)
        new = partition is not None and self._known.me in partition.adding
        if topic_id in self._known.image.deleting and new:
            yield from self._leave(name, key, ())  # its reassignment ends with the topic

    def _carry_out(self, name: str, key: Key, path: str) -> Task:
        read = certain((yield zk.GetData(path)))
        if not isinstance(read, zk.Data):
            return
        try:
            change = decode(path, read.data, StateRequest).change
        except BadZnode as bad:
            self._out.note(ZnodeUnreadable(reason=str(bad)))
            return
        # The request says that something has changed, and not what: what is done follows from the
        # partition as it is read now.
        if change is not StateChange.DELETE:
            yield from self._hosting.reread(name, key[1])
        one = self._known.partition(key)
        # A reassignment that was called off, or that brought the replica back, has overtaken the
        # request.
        moot = change is StateChange.UNASSIGNED and (
            one is not None and self._known.me in one.replicas
        )
        self._out.note(
            StateChangeCarriedOut(
                topic=name, partition=key[1], path=path, change=change.value, moot=moot
            )
        )
        if moot or not self._policies.carries_out(change):
            certain((yield zk.Delete(path)))
            return
        match change:
            case StateChange.BECOME_FOLLOWER:
                pass  # it follows the leader that it has read
            case StateChange.ASSIGNED:
                self._hosting.host(key)
            case StateChange.UNASSIGNED:
                yield from self._leave(name, key, (path,))
                return
            case StateChange.DELETE:
                yield from self._leave(name, key, (path,))
                yield from self.finish_deletion(name)
                return
        certain((yield zk.Delete(path)))

    def _leave(self, name: str, key: Key, requests: tuple[str, ...]) -> Task:
        """Removes a replica, and its state from ZooKeeper once that is done."""
        one = self._known.partition(key)
        # The replica goes first, and its znodes after it: a broker that dies in between finds the
        # request again.
        self._hosting.remove(name, key)
        if one is not None and one.leader == self._known.me:
            certain((yield zk.Delete(znodes.leader(name, key[1]))))
        for path in requests:
            certain((yield zk.Delete(path)))
        certain((yield zk.Delete(znodes.state(name, key[1], self._known.me))))

    def finish_deletion(self, name: str) -> Task:
        """Deletes a topic whose replicas have all been removed."""
        topic_id = self._known.image.topics.get(name)
        if topic_id is None or topic_id not in self._known.image.deleting:
            return
        for index in sorted(self._known.image.partitions[topic_id]):
            left = certain((yield zk.GetChildren(znodes.states(name, index))))
            if not isinstance(left, zk.Children) or left.names:
                return
        # Several brokers may find this at once. One transaction succeeds, and the others are
        # refused.
        certain((yield zk.Multi(writes.topic_gone(self._known, name))))
