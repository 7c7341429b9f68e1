"""Control requests at a broker: which it carries out (KIP-380), and their effects.

LeaderAndIsr assigns replicas and leaderships. UpdateMetadata sets the metadata that clients get.
StopReplica takes replicas offline. A refused request has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from msgspec.structs import replace

from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.node.effects import Close, Instant, Received, Reply
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.replication.cluster_state import Broker, Partition
from fencepost_clusters.reference.core.replication.replica import Key, log_name
from fencepost_clusters.reference.core.replication.replicas import Replicas
from fencepost_clusters.reference.legacy.core import znodes
from fencepost_clusters.reference.legacy.core.broker.isr_requests import KnownZnodes
from fencepost_clusters.reference.legacy.core.broker.lifecycle import Lifecycle
from fencepost_clusters.reference.legacy.core.controller.messages import (
    BEING_DELETED,
    ControlRequest,
    api_of,
    deletes,
    named,
    named_brokers,
)
from fencepost_clusters.reference.legacy.core.policies import LegacyBrokerPolicies
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import ControlRequestAnswered, ReplicaStopped


@final
class Commands:
    """See the module.

    `roles` holds the partitions of which this broker has a replica, from LeaderAndIsr. `metadata`
    holds the whole cluster, from UpdateMetadata. A leader needs `known` to write znodes.
    """

    def __init__(
        self,
        settings: Settings,
        lifecycle: Lifecycle,
        replicas: Replicas,
        known: KnownZnodes,
        *,
        policies: LegacyBrokerPolicies,
        out: Outbox,
    ) -> None:
        self.roles = Image()
        self.metadata = Image()
        self.informed = False
        """Whether a controller has sent this process the metadata that it serves to clients."""
        self.known = known
        self._epochs: Mapping[int, int] = {}
        """The brokers' epochs in ZooKeeper."""
        self.new_topics: set[str] = set()
        """The new topics, whose settings are not read yet."""
        # Until the first LeaderAndIsr is carried out, for the event of that request.
        self._first = True
        # Until strays were deleted, once in a process's life.
        self._may_have_strays = True
        self._settings = settings
        self._lifecycle = lifecycle
        self._replicas = replicas
        self._policies = policies
        self._out = out

    # ------------------------------------------------------------------------------- judging

    def handle(self, received: Received, request: ControlRequest, now: Instant) -> None:
        """Carries out a request and answers it, or refuses it.

        Before its registration, a process cannot decide whether a request is meant for it (BE-07).
        It closes the connection, and the controller sends the request again.
        """
        if not (self._lifecycle.is_registered or self._lifecycle.lost):
            self._out.add(Close(received.request_id, "not registered yet"))
            return
        seen, first = self.known.controller_epoch, self._first
        # The judgement comes before every effect: a refused request must change nothing, not even
        # the newest controller epoch that this broker knows.
        error = self._judge(request)
        if error is Error.NONE:
            self.known.controller_epoch = max(seen, request.controller_epoch)
            if self._policies.carries_out(api_of(request)):
                self._carry_out(request, now)
        self._out.note(
            ControlRequestAnswered(
                api=api_of(request),
                client=received.client,
                broker_id=self._settings.node_id,
                controller_id=request.controller_id,
                controller_epoch=request.controller_epoch,
                seen_epoch=seen,
                request_epoch=request.broker_epoch,
                broker_epoch=self._lifecycle.epoch,
                error=error.name,
                partitions=named(request),
                first=first and isinstance(request, w.LeaderAndIsrRequest) and not error,
                deletes=deletes(request),
                brokers=named_brokers(request),
            )
        )
        match request:
            case w.LeaderAndIsrRequest():
                self._out.add(Reply(received.request_id, w.LeaderAndIsrResponse(error_code=error)))
            case w.UpdateMetadataRequest():
                answer = w.UpdateMetadataResponse(error_code=error)
                self._out.add(Reply(received.request_id, answer))
            case w.StopReplicaRequest():
                self._out.add(Reply(received.request_id, w.StopReplicaResponse(error_code=error)))

    def _judge(self, request: ControlRequest) -> Error:
        """Returns the error of a request for an earlier process (BE-02), or of a request from a
        deposed controller (BE-08); otherwise NONE."""
        refuses = {
            "LeaderAndIsr": self._policies.refuses_leader_and_isr,
            "UpdateMetadata": self._policies.refuses_update_metadata,
            "StopReplica": self._policies.refuses_stop_replica,
        }[api_of(request)]
        # KIP-380: a request that waited in the controller's queue while this broker restarted is
        # meant for its former process. Carried out here, a StopReplica would stop a replica that
        # the new process was just given.
        if self._lifecycle.lost or refuses(request.broker_epoch, self._lifecycle.epoch):
            return Error.STALE_BROKER_EPOCH
        if self._policies.is_of_deposed_controller(
            request.controller_epoch, self.known.controller_epoch
        ):
            return Error.STALE_CONTROLLER_EPOCH
        return Error.NONE

    def _carry_out(self, request: ControlRequest, now: Instant) -> None:
        match request:
            case w.LeaderAndIsrRequest():
                self._lead_and_follow(request, now)
            case w.UpdateMetadataRequest():
                self._learn(request)
                self.informed = True
            case w.StopReplicaRequest():
                self._stop(request, now)

    # ------------------------------------------------------------------------------- LeaderAndIsr

    def _lead_and_follow(self, request: w.LeaderAndIsrRequest, now: Instant) -> None:
        changed: list[Key] = []
        for topic in request.topic_states:
            topic_id = znodes.topic_id(topic.topic_name)
            self.roles.topics[topic.topic_name] = topic_id
            self.roles.names[topic_id] = topic.topic_name
            parts = self.roles.partitions.setdefault(topic_id, {})
            for wanted in topic.partition_states:
                key = (topic_id, wanted.partition_index)
                known = parts.get(wanted.partition_index)
                # By both: an ISR that changes within a leader epoch has another version of the
                # znode.
                newer = (wanted.leader_epoch, wanted.zk_version)
                if known is not None and newer <= (known.leader_epoch, self.known.versions[key]):
                    continue  # it was overtaken by a newer state, or arrives twice
                parts[wanted.partition_index] = Partition(
                    topic_id=topic_id,
                    index=wanted.partition_index,
                    replicas=wanted.replicas,
                    isr=wanted.isr,
                    leader=wanted.leader,
                    leader_epoch=wanted.leader_epoch,
                )
                self.known.versions[key] = wanted.zk_version
                changed.append(key)
        self._first = False
        if self._may_have_strays and request.broker_epoch != w.NO_EPOCH:
            # The first LeaderAndIsr to a process names all that it hosts (BE-07). A LeaderAndIsr
            # without a broker epoch may be meant for an earlier process, and name fewer.
            self._may_have_strays = False
            self._replicas.delete_strays(self.roles)
        self._replicas.adopt(self.roles, changed, now)

    def isr_stored(self, key: Key, isr: tuple[int, ...], version: int | None, now: Instant) -> None:
        """Applies a stored ISR that this leader requested. `version` is the znode's, if known."""
        one = self.roles.partitions.get(key[0], {}).get(key[1])
        if one is None:
            return
        # The controller's answer has no version. A version that is counted too high would make this
        # leader skip the next LeaderAndIsr as an old one.
        if version is None:
            # An unchanged ISR was not written, so the version stays.
            version = self.known.versions[key] + (set(isr) != set(one.isr))
        self.roles.partitions[key[0]][key[1]] = replace(one, isr=isr)
        self.known.versions[key] = version
        self._replicas.adopt(self.roles, [key], now)
        self._replicas.confirmed(key)

    # ----------------------------------------------------------------------------- UpdateMetadata

    def _learn(self, request: w.UpdateMetadataRequest) -> None:
        image = self.metadata
        before = image.brokers
        image.brokers = {
            one.id: Broker(
                id=one.id,
                # UpdateMetadata has no broker epochs; `set_epochs` has them from ZooKeeper.
                epoch=before[one.id].epoch if one.id in before else -1,
                fenced=False,
                incarnation=None,
                endpoints=tuple((e.listener, e.host, e.port) for e in one.endpoints),
                registered_at=-1,
            )
            for one in request.live_brokers
        }
        for topic in request.topic_states:
            topic_id = znodes.topic_id(topic.topic_name)
            if topic.topic_name not in image.topics:
                self.new_topics.add(topic.topic_name)
            for state in topic.partition_states:
                if state.leader == BEING_DELETED:
                    self._forget(image, topic.topic_name)
                    break
                image.topics[topic.topic_name] = topic_id
                image.names[topic_id] = topic.topic_name
                image.partitions.setdefault(topic_id, {})[state.partition_index] = Partition(
                    topic_id=topic_id,
                    index=state.partition_index,
                    replicas=state.replicas,
                    isr=state.isr,
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                )
        self.set_epochs(self._epochs)

    @staticmethod
    def _forget(image: Image, name: str) -> None:
        topic_id = image.topics.pop(name, None)
        if topic_id is not None:
            del image.names[topic_id], image.partitions[topic_id]
            image.settings.pop(name, None)

    def set_epochs(self, epochs: Mapping[int, int]) -> None:
        """Sets the brokers' epochs in ZooKeeper: a leader counts only fetches with them (HB-24)."""
        self._epochs = epochs
        for broker, one in self.metadata.brokers.items():
            # It never falls: an old list of registrations would let a former process's fetches
            # count again.
            epoch = max(one.epoch, epochs.get(broker, -1))
            if epoch != one.epoch:
                self.metadata.brokers[broker] = replace(one, epoch=epoch)
                for replica in self._replicas.all():
                    replica.forget(broker)

    # -------------------------------------------------------------------------------- StopReplica

    def _stop(self, request: w.StopReplicaRequest, now: Instant) -> None:
        gone: list[Key] = []
        logs: set[str] = set()
        for topic in request.topics:
            topic_id = znodes.topic_id(topic.topic_name)
            parts = self.roles.partitions.get(topic_id, {})
            for index in topic.partition_indexes:
                if request.delete_partitions:
                    # A deleted replica is forgotten with its versions: a topic of the same name may
                    # be created again, and its znodes begin at version 0.
                    parts.pop(index, None)
                    self.known.versions.pop((topic_id, index), None)
                    gone.append((topic_id, index))
                    logs.add(log_name(topic.topic_name, gone[-1]))
                elif index in parts:
                    # The replica stays known: a LeaderAndIsr of a higher leader epoch restarts it.
                    parts[index] = replace(parts[index], leader=-1)
                    self._replicas.adopt(self.roles, [(topic_id, index)], now)
                    self._out.note(
                        ReplicaStopped(
                            topic=topic.topic_name,
                            partition=index,
                            controller_epoch=request.controller_epoch,
                            request_epoch=request.broker_epoch,
                        )
                    )
            if request.delete_partitions and not parts:
                self._forget(self.roles, topic.topic_name)
        if gone:
            self._replicas.adopt(self.roles, gone, now)
            # The log may be on disk though no LeaderAndIsr has named the replica yet.
            self._replicas.delete_unopened(logs)
