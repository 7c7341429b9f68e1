"""etcd's clients as a test sees them: workers that were started, and their events."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random  # noqa: TID251 - a seeded stream is passed in
from typing import final

from fencepost import ClientSession, ClientSpec, Condition, Defect, Workers, plain
from fencepost_clusters.etcd.clients.options import (
    EtcdOptions,
    LockerOptions,
    ReaderOptions,
    RegisterOptions,
)
from fencepost_clusters.etcd.cluster import EtcdCluster, Member, etcd_cluster
from fencepost_clusters.etcd.view import EtcdView

WORKLOAD = "etcd_clients"
DEFECTS = (
    Defect(
        "store-checks-no-token",
        ("ETCD-06",),
        "clients write to the store without the comparison of tokens, so it takes every write",
    ),
)
KEYS = ("r0", "r1", "r2")
READ_LIMIT_MS = 60_000
PROBE_LIMIT_MS = 5_000


def spec(name: str, options: EtcdOptions) -> ClientSpec:
    """A client to start."""
    return ClientSpec(name, WORKLOAD, plain(options))


@final
class Registers:
    """A client of keys that was started."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    @property
    def process(self) -> str:
        return self._session.process

    def stop(self) -> None:
        """Asks the client to end."""
        self._session.stop()

    def completed_at_least(self, count: int) -> Condition:
        """That many of its operations took effect."""
        return Condition(
            f"{count} operations of {self.process} to take effect",
            lambda view: view.of(EtcdView).completed[self.process] >= count,
        )


@final
class Locker:
    """A client that works under a lock."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    @property
    def process(self) -> str:
        return self._session.process

    def stop(self) -> None:
        """Asks the client to end."""
        self._session.stop()

    def taken_at_least(self, count: int) -> Condition:
        """It took the lock that many times."""
        return Condition(
            f"{self.process} to take its lock {count} times",
            lambda view: view.of(EtcdView).taken[self.process] >= count,
        )

    def written_at_least(self, count: int) -> Condition:
        """The store accepted that many of its writes."""
        return Condition(
            f"{count} writes of {self.process} to be taken",
            lambda view: view.of(EtcdView).written[self.process] >= count,
        )

    @property
    def refused(self) -> Condition:
        """The store refused one of its writes, because of a newer holder's token."""
        return Condition(
            f"a write of {self.process} to be refused for its token",
            lambda view: view.of(EtcdView).refused[self.process] > 0,
        )


@final
class EtcdClients:
    """Starts clients in the clients' slot."""

    def __init__(self, workers: Workers, cluster: EtcdCluster) -> None:
        self._workers = workers
        self._cluster = cluster
        self._started = 0

    def registers(
        self,
        *keys: str,
        at: Sequence[Member] = (),
        rate: float = 50.0,
        count: int = 0,
        serializable_every: int = 7,
    ) -> Registers:
        """Starts a client that puts, gets and swaps these keys in turn, `rate` times a second.

        It begins with the first member of `at` (none: all of them) and goes on to the next member
        when an operation does not succeed. One operation in `serializable_every` is read from the
        member's own state (0: none). It ends after `count` operations (0: with the run).
        """
        options = RegisterOptions(
            keys=keys or KEYS,
            slots=self._slots(at),
            rate=rate,
            count=count,
            serializable_every=serializable_every,
        )
        return Registers(self._start("registers", options))

    def locker(
        self,
        lock: str = "lock",
        store: str = "store",
        *,
        at: Sequence[Member] = (),
        ttl_s: int = 2,
        writes: int = 10,
        every_ms: float = 50.0,
        renew_every: int = 1,
        count: int = 0,
        abandon_every: int = 0,
    ) -> Locker:
        """Starts a client that takes a lock and writes to the store that the lock guards.

        Its lease lasts `ttl_s` and is renewed after every `renew_every` writes. With 0 it is never
        renewed: the client goes on after it lost the lock, until the store refuses it. It takes the
        lock `count` times (0: as long as the run lasts); see `LockerOptions` for the other options.
        """
        options = LockerOptions(
            lock=lock,
            store=store,
            slots=self._slots(at),
            ttl_s=ttl_s,
            writes=writes,
            every_ms=every_ms,
            renew_every=renew_every,
            count=count,
            abandon_every=abandon_every,
            check_tokens=DEFECTS[0].name not in self._cluster.base.shape.defects,
        )
        return Locker(self._start("locker", options))

    def load(self, selectors: Sequence[str] = ()) -> None:
        """Two clients of three keys, and two that take a lock in turn."""
        for _ in range(2):
            self.registers(*KEYS, rate=20.0)
        for _ in range(2):
            self.locker(every_ms=100.0, abandon_every=3)

    def probe(self, random: Random, victims: Sequence[str]) -> None:
        """Reads a key through one member: one that a fault affects, if there is one."""
        members = self._cluster.members
        asked = [member for member in members if member.name in victims] or list(members)
        one = asked[random.randrange(len(asked))]
        options = ReaderOptions(
            keys=(KEYS[0],), slots=(one.name,), final=False, tries=1, limit_ms=PROBE_LIMIT_MS
        )
        self._workers.await_end([self._start("probe", options)])

    def read_finally(self) -> Sequence[str]:
        """Reads every used key, linearizably; returns the keys that could not be read from any
        member."""
        known = self._cluster.base.runtime.view.of(EtcdView)
        keys = tuple(known.keys)
        if keys:
            reader = self._start("reader", ReaderOptions(keys=keys, slots=self._slots(())))
            self._workers.await_end([reader], READ_LIMIT_MS)
        return [f"key {key}" for key in keys if key not in known.read_finally]

    def _slots(self, at: Sequence[Member]) -> tuple[str, ...]:
        """The members in the order in which a client asks them; each begins with another one."""
        names = [member.name for member in at or self._cluster.members]
        first = 0 if at else self._started % len(names)
        return (*names[first:], *names[:first])

    def _start(self, kind: str, options: EtcdOptions) -> ClientSession:
        self._started += 1
        return self._workers.start_kind(kind, plain(options))


def etcd_clients(workers: Workers, cluster: object) -> EtcdClients:
    """The workload's facade; raises UsageError for a cluster of another system."""
    return EtcdClients(workers, etcd_cluster(cluster))
