"""The scripts of etcd's clients, and the outcomes that answers prove, without a server."""

from __future__ import annotations

import msgspec
import pytest

from fencepost_clusters.etcd.clients import messages
from fencepost_clusters.etcd.clients.locks import HELD, OLD_TOKEN, Locker
from fencepost_clusters.etcd.clients.messages import (
    NoReply,
    NotSent,
    Replied,
    Response,
    StatusReply,
    TxnReply,
)
from fencepost_clusters.etcd.clients.observing import observed, observing
from fencepost_clusters.etcd.clients.options import (
    LockerOptions,
    ObserverOptions,
    ReaderOptions,
    RegisterOptions,
)
from fencepost_clusters.etcd.clients.outcomes import decoded, of_read, of_write
from fencepost_clusters.etcd.clients.registers import COMPARE_FAILED, completed_by, reading, working
from fencepost_clusters.etcd.clients.script import Record, Script, Send, Wait, lease_id
from fencepost_clusters.etcd.events import (
    LeaseCompleted,
    LockCompleted,
    RegisterCompleted,
    RegisterInvoked,
    StoreCompleted,
)

SLOTS = ("etcd-1", "etcd-2")
HEADER = '"header":{"cluster_id":"1","member_id":"16710542284742145788",'
LOST = NoReply("timed out")


def ok(rest: str = "", revision: int = 7) -> Replied:
    """An answer of 200 as the gateway writes it."""
    body = f'{{{HEADER}"revision":"{revision}","raft_term":"2"}}{rest}}}'
    return Replied(200, body.encode())


def refusal(message: str, status: int = 503) -> Replied:
    return Replied(status, msgspec.json.encode({"code": 14, "message": message}))


def found(value: str, create: int, lease: int = 0, mod: int = 6) -> Replied:
    """A transaction whose comparison failed and that read this key."""
    kv = {
        "key": b"k", "value": value.encode(), "create_revision": str(create),
        "mod_revision": str(mod), "version": "3", "lease": str(lease),
    }  # fmt: skip
    part = msgspec.json.encode([{"response_range": {"kvs": [kv], "count": "1"}}]).decode()
    return ok(f',"responses":{part}')


DONE = ok(',"succeeded":true')


def play(script: Script, *answers: Response) -> tuple[list[Send], list[object]]:
    """The requests and events of a script that gets these answers; it ends with the last one."""
    sent: list[Send] = []
    recorded: list[object] = []
    left = list(answers)
    answer: Response | None = None
    try:
        while True:
            step = script.send(answer)
            answer = None
            match step:
                case Send():
                    if not left:
                        break
                    sent.append(step)
                    answer = left.pop(0)
                case Record():
                    recorded.append(step.body)
                case Wait():
                    pass
    except StopIteration:
        pass
    return sent, recorded


# --------------------------------------------------------------------------------------- outcomes


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (ok(), "ok"),
        (NotSent("refused"), "failed"),
        (LOST, "unknown"),
        (refusal("etcdserver: no leader"), "failed"),
        (refusal("etcdserver: too many requests"), "failed"),
        (refusal("raft proposal dropped"), "failed"),
        (refusal("etcdserver: request timed out"), "unknown"),
        (refusal("context deadline exceeded", 504), "unknown"),
        (refusal("etcdserver: mvcc: database space exceeded"), "unknown"),
        (refusal("etcdserver: leader changed"), "unknown"),
        (refusal("etcdserver: server stopped"), "unknown"),
        (Replied(502, b"<html>"), "unknown"),
        (Replied(503, b"[1]"), "unknown"),
    ],
)
def test_the_outcome_that_an_answer_to_a_write_proves(answer: Response, outcome: str) -> None:
    assert of_write(answer).outcome == outcome


def test_no_leader_proves_nothing_of_a_renewal() -> None:
    wrapped = Replied(503, b'{"error":{"code":14,"message":"etcdserver: no leader"}}')
    assert of_write(wrapped, no_leader_refuses=False).outcome == "unknown"
    assert of_write(wrapped).outcome == "failed"


def test_a_read_without_an_answer_has_failed() -> None:
    assert of_read(LOST).outcome == "failed"


def test_the_gateways_numbers_are_text_and_zeros_are_left_out() -> None:
    reply = decoded(ok(',"leader":"6335159300371967729","raftTerm":"2"'), StatusReply)
    assert reply is not None
    assert (f"{reply.header.member_id:x}", reply.raftTerm) == ("e7e7c5abf63336fc", 2)
    txn = decoded(ok(), TxnReply)
    assert txn is not None
    assert not txn.succeeded
    assert decoded(Replied(200, b"cut sho"), TxnReply) is None


# -------------------------------------------------------------------------------------- registers


def invoked(action: str, expected: int = -1) -> RegisterInvoked:
    fields = {"operation": "o", "key": "k", "action": action, "slot": "etcd-1", "value": "o",
              "expected": expected}  # fmt: skip
    return msgspec.convert(fields | {"type": "etcd.register_invoked"}, RegisterInvoked)


def outcome_of(action: str, answer: Response) -> tuple[str, int, int, int, str]:
    done = completed_by(invoked(action, 5), answer)
    return done.outcome, done.revision, done.mod_revision, done.version, done.value


def test_how_operations_end() -> None:
    before = ',"prev_kv":{"key":"aw==","value":"YQ==","mod_revision":"5","version":"2"}'
    kvs = ',"kvs":[{"key":"aw==","value":"YQ==","mod_revision":"5","version":"2"}]'
    assert outcome_of("put", ok()) == ("ok", 7, 7, 1, "o")
    assert outcome_of("put", ok(before)) == ("ok", 7, 7, 3, "o")
    assert outcome_of("put", LOST) == ("unknown", -1, -1, -1, "")
    assert outcome_of("get", ok(kvs)) == ("ok", 7, 5, 2, "a")
    assert outcome_of("get", ok()) == ("ok", 7, 0, 0, "")
    assert outcome_of("swap", DONE) == ("ok", 7, 7, -1, "o")
    assert outcome_of("swap", found("x", 2)) == ("failed", 7, 6, 3, "x")
    assert outcome_of("put", Replied(200, b"{")) == ("unknown", -1, -1, -1, "")


def test_a_client_moves_to_another_member_only_when_an_operation_went_wrong() -> None:
    options = RegisterOptions(keys=("r0",), count=3)
    sent, recorded = play(working("c", options, SLOTS), ok(), LOST, ok())
    assert [one.slot for one in sent] == ["etcd-1", "etcd-1", "etcd-2"]
    assert len([one for one in recorded if isinstance(one, RegisterCompleted)]) == 3


def test_the_same_client_does_the_same_again_and_writes_unique_values() -> None:
    options = RegisterOptions(count=200, serializable_every=5)
    plays = [play(working("c", options, SLOTS), *[ok()] * 200)[1] for _ in range(2)]
    assert plays[0] == plays[1]
    begun = [one for one in plays[0] if isinstance(one, RegisterInvoked)]
    values = [one.value for one in begun if one.action != "get"]
    assert len(values) == len(set(values))
    assert {one.action for one in begun} == {"put", "get", "swap"}
    assert any(one.serializable for one in begun)


def test_a_reader_tries_until_each_key_was_read() -> None:
    options = ReaderOptions(keys=("r0", "r1"), tries=2)
    sent, recorded = play(reading("c", options, SLOTS), NotSent("no"), ok(), ok())
    assert [one.slot for one in sent] == ["etcd-1", "etcd-2", "etcd-2"]
    completed = [one for one in recorded if isinstance(one, RegisterCompleted)]
    assert [(one.key, one.outcome, one.final) for one in completed] == [
        ("r0", "failed", True), ("r0", "ok", True), ("r1", "ok", True),
    ]  # fmt: skip
    assert COMPARE_FAILED not in {one.error for one in completed}


# ------------------------------------------------------------------------------------------ locks

GRANTED = ok(',"ID":"9","TTL":"3"')
RENEWED = Replied(200, b'{"result":{"header":{"revision":"7"},"ID":"9","TTL":"3"}}')
GONE = Replied(200, b'{"result":{"header":{"revision":"7"},"ID":"9"}}')
LEASE = lease_id("run", "c", 0)


def locker(**options: object) -> Script:
    chosen = msgspec.convert({"kind": "locker", "count": 1, "writes": 2, **options}, LockerOptions)
    return Locker("run", "c", chosen, SLOTS).working()


def paths(sent: list[Send]) -> list[str]:
    return [one.request.path.removeprefix("/v3/") for one in sent]


def test_a_holder_writes_renews_releases_and_gives_its_lease_back() -> None:
    sent, recorded = play(locker(), DONE, GRANTED, DONE, DONE, RENEWED, DONE, RENEWED, DONE, ok())
    assert paths(sent) == [
        "kv/txn", "lease/grant", "kv/txn", "kv/txn", "lease/keepalive", "kv/txn",
        "lease/keepalive", "kv/txn", "lease/revoke",
    ]  # fmt: skip
    tokens = {one.token for one in recorded if isinstance(one, StoreCompleted)}
    assert tokens == {7}


def test_a_client_waits_for_a_lock_that_another_holds() -> None:
    _, recorded = play(locker(), DONE, GRANTED, found("b:1", 5, lease=4), RENEWED, DONE)
    takes = [one for one in recorded if isinstance(one, LockCompleted)]
    assert [(one.outcome, one.token, one.holder_token, one.error) for one in takes] == [
        ("failed", -1, 5, HELD), ("ok", 7, -1, ""),
    ]  # fmt: skip


def test_a_take_whose_answer_was_lost_is_found_to_have_taken_effect() -> None:
    _, recorded = play(locker(), DONE, GRANTED, LOST, RENEWED, found("c:1", 5, lease=LEASE))
    takes = [one for one in recorded if isinstance(one, LockCompleted)]
    assert [(one.outcome, one.token) for one in takes] == [("unknown", -1), ("ok", 5)]


def test_a_holder_whose_lease_is_gone_stops_and_releases() -> None:
    sent, recorded = play(
        locker(), DONE, GRANTED, DONE, DONE, GONE, found("b:1", 9, lease=4),
        refusal("etcdserver: requested lease not found", 404),
    )  # fmt: skip
    assert len(sent) == 7
    leases = [one for one in recorded if isinstance(one, LeaseCompleted)]
    assert [(one.action, one.outcome, one.ttl_s) for one in leases] == [
        ("grant", "ok", 3), ("renew", "failed", 0), ("revoke", "failed", 0),
    ]  # fmt: skip


def test_a_holder_that_the_store_refuses_stops() -> None:
    sent, recorded = play(locker(), DONE, GRANTED, DONE, found(messages.padded(12), 2), DONE, ok())
    (refused,) = [one for one in recorded if isinstance(one, StoreCompleted)]
    assert (refused.outcome, refused.newer_token, refused.error) == ("failed", 12, OLD_TOKEN)
    assert paths(sent)[-2:] == ["kv/txn", "lease/revoke"]


def test_the_planted_defect_writes_without_a_comparison() -> None:
    for check, compares in ((True, 1), (False, 0)):
        sent, _ = play(locker(check_tokens=check), DONE, GRANTED, DONE, DONE)
        assert len(sent[3].request.body["compare"]) == compares


def test_stored_tokens_compare_as_bytes_as_they_do_as_numbers() -> None:
    assert messages.padded(99) < messages.padded(100) < messages.padded(2**63)


# --------------------------------------------------------------------------------------- observer


def test_an_observer_records_changes_only() -> None:
    seen = ok(',"leader":"5","raftTerm":"2","raftIndex":"9"')
    later = ok(',"leader":"5","raftTerm":"2","raftIndex":"11"')
    script = observing(ObserverOptions(), ("etcd-1",))
    sent, recorded = play(script, seen, later, LOST, later)
    assert recorded == [
        observed("etcd-1", seen),
        observed("etcd-1", LOST),
        observed("etcd-1", later),
    ]
    assert all(one.past_links and not one.request.needs_leader for one in sent)
