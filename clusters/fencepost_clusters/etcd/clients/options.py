"""The options of etcd's clients."""

from __future__ import annotations

from msgspec import Struct


class RegisterOptions(
    Struct, frozen=True, kw_only=True, tag_field="kind", tag="registers", forbid_unknown_fields=True
):
    """Puts, gets and swaps on the keys in turn until `count` operations (0: until stopped).

    It asks one of `slots` (none: all) and moves on when an operation does not end well. One read in
    `serializable_every` is of the member's own state (0: none).
    """

    keys: tuple[str, ...] = ("r0", "r1", "r2")
    slots: tuple[str, ...] = ()
    count: int = 0
    rate: float = 50.0
    serializable_every: int = 0
    limit_ms: int = 3_000


class ReaderOptions(
    Struct, frozen=True, kw_only=True, tag_field="kind", tag="reader", forbid_unknown_fields=True
):
    """Reads each key once, linearizably, and ends; the run is judged by these final reads."""

    keys: tuple[str, ...] = ("r0", "r1", "r2")
    slots: tuple[str, ...] = ()
    final: bool = True
    tries: int = 20
    limit_ms: int = 3_000


class LockerOptions(
    Struct, frozen=True, kw_only=True, tag_field="kind", tag="locker", forbid_unknown_fields=True
):
    """Takes the lock, writes to the store `writes` times and releases the lock.

    It renews its lease after every `renew_every` writes (0: never, so that the lease runs out while
    the client goes on). One hold in `abandon_every` is abandoned without a release, as by a client
    that died (0: none). `check_tokens` false is a planted defect: the store takes the writes of old
    holders.
    """

    lock: str = "lock"
    store: str = "store"
    slots: tuple[str, ...] = ()
    ttl_s: int = 3
    writes: int = 10
    renew_every: int = 1
    every_ms: float = 100.0
    count: int = 0
    abandon_every: int = 0
    check_tokens: bool = True
    limit_ms: int = 2_000


class ObserverOptions(
    Struct, frozen=True, kw_only=True, tag_field="kind", tag="observer", forbid_unknown_fields=True
):
    """Asks every member for its status, without links, until stopped."""

    every_ms: float = 100.0
    limit_ms: int = 300


EtcdOptions = RegisterOptions | ReaderOptions | LockerOptions | ObserverOptions
