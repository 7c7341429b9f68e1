"""The scripts of clients that write and read single keys."""

from __future__ import annotations

from collections.abc import Generator

from msgspec import Struct

from fencepost_clusters.etcd.clients import messages
from fencepost_clusters.etcd.clients.messages import (
    Header,
    KeyValue,
    PutReply,
    RangeReply,
    Request,
    Response,
    TxnReply,
)
from fencepost_clusters.etcd.clients.options import ReaderOptions, RegisterOptions
from fencepost_clusters.etcd.clients.outcomes import decoded, of_read, of_write
from fencepost_clusters.etcd.clients.script import (
    Members,
    Record,
    Script,
    Send,
    Step,
    Wait,
    ask,
    draw,
)
from fencepost_clusters.etcd.events import RegisterAction, RegisterCompleted, RegisterInvoked

COMPARE_FAILED = "the comparison failed"
_RETRY_MS = 250


def working(process: str, options: RegisterOptions, slots: tuple[str, ...]) -> Script:
    """Puts, gets and swaps, one after another."""
    members = Members(options.slots or slots)
    known: dict[str, int] = {}
    number = 0
    while number < options.count or not options.count:
        invoked = choose(process, number, options, known, members.now)
        completed = yield from operate(invoked, options.limit_ms)
        if completed.mod_revision >= 0 and not completed.serializable:
            known[completed.key] = completed.mod_revision
        if completed.outcome != "ok" and completed.error != COMPARE_FAILED:
            members.move_on()
        number += 1
        yield Wait(1000 / options.rate)


def reading(process: str, options: ReaderOptions, slots: tuple[str, ...]) -> Script:
    """Reads each key once; a failed read is tried again, with any member."""
    members = Members(options.slots or slots)
    for key in options.keys:
        for attempt in range(options.tries):
            invoked = RegisterInvoked(
                operation=f"{process}:{key}:{attempt}",
                key=key,
                action="get",
                slot=members.now,
                final=options.final,
            )
            completed = yield from operate(invoked, options.limit_ms)
            if completed.outcome == "ok":
                break
            members.move_on()
            yield Wait(_RETRY_MS)


def choose(
    process: str, number: int, options: RegisterOptions, known: dict[str, int], slot: str
) -> RegisterInvoked:
    """The next operation. A swap expects the last mod_revision that this client saw of the key."""
    operation = f"{process}:{number}"
    key = options.keys[draw(process, 2 * number, len(options.keys))]
    action: RegisterAction = ("put", "get", "get", "swap")[draw(process, 2 * number + 1, 4)]
    if action == "swap" and key not in known:
        action = "get"
    every = options.serializable_every
    return RegisterInvoked(
        operation=operation,
        key=key,
        action=action,
        slot=slot,
        value="" if action == "get" else operation,
        expected=known[key] if action == "swap" else -1,
        serializable=action == "get" and every > 0 and number % every == 0,
    )


def operate(
    invoked: RegisterInvoked, limit_ms: int
) -> Generator[Step, Response | None, RegisterCompleted]:
    """Carries out one operation, and records its two events."""
    yield Record(invoked)
    answer = yield from ask(Send(invoked.slot, request_of(invoked), limit_ms))
    completed = completed_by(invoked, answer)
    yield Record(completed)
    return completed


def request_of(invoked: RegisterInvoked) -> Request:
    """The request that carries an operation."""
    match invoked.action:
        case "put":
            return messages.put(invoked.key, invoked.value)
        case "get":
            return messages.get(invoked.key, invoked.serializable)
        case "swap":
            return messages.swap(invoked.key, invoked.expected, invoked.value)


class _Found(Struct, frozen=True):
    mod_revision: int = -1
    value: str = ""
    version: int = -1


def completed_by(invoked: RegisterInvoked, answer: Response) -> RegisterCompleted:
    """The event of an operation's end, by its answer."""
    read = of_read(answer) if invoked.action == "get" else of_write(answer)
    outcome, error = read.outcome, read.error
    header = Header()
    found = _Found()
    reply = decoded(answer, _REPLIES[invoked.action])
    match reply:
        case PutReply(header, before):
            version = 1 if before is None else before.version + 1
            found = _Found(header.revision, invoked.value, version)
        case RangeReply(header, kvs):
            found = _found(kvs[0] if kvs else None)
        case TxnReply(header, succeeded):
            found = _Found(header.revision, invoked.value) if succeeded else _found(reply.found())
            if not succeeded:
                outcome, error = "failed", COMPARE_FAILED
        case _:
            if outcome == "ok":  # answered, but the answer cannot be decoded
                outcome, error = "unknown", "the answer cannot be read"
    return RegisterCompleted(
        operation=invoked.operation,
        key=invoked.key,
        action=invoked.action,
        outcome=outcome,
        revision=header.revision,
        mod_revision=found.mod_revision,
        version=found.version,
        value=found.value,
        term=header.raft_term,
        error=error,
        serializable=invoked.serializable,
        final=invoked.final,
    )


_REPLIES: dict[RegisterAction, type[PutReply | RangeReply | TxnReply]] = {
    "put": PutReply, "get": RangeReply, "swap": TxnReply,
}  # fmt: skip


def _found(kv: KeyValue | None) -> _Found:
    if kv is None:
        return _Found(0, "", 0)
    return _Found(kv.mod_revision, kv.value.decode(errors="replace"), kv.version)
