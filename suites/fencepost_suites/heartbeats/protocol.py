"""Brokers with an inter-broker protocol before the one that brings heartbeats (KIP-343)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Findings,
    Rule,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerDeclared,
    BrokerRegistered,
    BrokerStateChanged,
    IsrChangeJudged,
    MetadataHeartbeatAnswered,
    PartitionCommitted,
    broker_of,
)

HEARTBEATS = 3
"""The inter.broker.protocol that brings heartbeats and IsrChange."""


@dataclass(slots=True)
class _Protocols:
    """process -> its inter-broker protocol."""

    written: dict[tuple[int, int], tuple[int, Cause]] = field(default_factory=dict)
    """(broker, broker epoch) -> the BrokerInfo version that its process recorded."""

    of: dict[str, int] = field(default_factory=dict)

    def is_old(self, process: str) -> bool:
        """Whether a process is known to have a protocol without heartbeats."""
        return 0 <= self.of.get(process, -1) < HEARTBEATS


@final
class OldProtocolKept(Rule[_Protocols]):
    """HB-22. The controller's event is the evidence of a broker's heartbeat or IsrChange, and of
    the version in its znode. That a broker fenced itself, or wrote an ISR to ZooKeeper, is its own
    word: no other event shows it."""

    clause = "HB-22"
    state = _Protocols

    @on(
        BrokerRegistered,
        MetadataHeartbeatAnswered,
        BrokerStateChanged,
        IsrChangeJudged,
        PartitionCommitted,
        BrokerDeclared,
    )
    def step(self, state: _Protocols, event: Event, body: Struct) -> Findings:
        match body:
            case BrokerRegistered():
                state.of[event.process] = body.protocol
                state.written[body.broker_id, body.broker_epoch] = (body.version, event.ref)
                wanted = 5 if body.protocol >= HEARTBEATS else 4
                if body.protocol >= 0 and body.version != wanted:
                    broken = violated(
                        event.ref,
                        Evidence.SELF,
                        "{process} has inter.broker.protocol {protocol}, but registered with "
                        "BrokerInfo {version}",
                        process=process_scope(event.process),
                        protocol=body.protocol,
                        version=body.version,
                        broker=broker_of(body.broker_id),
                    )
                    return (broken,)
            case BrokerDeclared() if body.version:
                own, ref = state.written.get((body.broker_id, body.incarnation_id), (0, event.ref))
                if own and own != body.version:
                    broken = violated(
                        event.ref,
                        Evidence.PEER,
                        "{process} read BrokerInfo {version} in the registration of {other}, which "
                        "had recorded {expected}",
                        (ref,),
                        process=process_scope(event.process),
                        version=body.version,
                        other=process_scope(ref.process),
                        expected=own,
                        broker=broker_of(body.broker_id),
                    )
                    return (broken,)
            case MetadataHeartbeatAnswered() if state.is_old(body.client):
                return _broken(event, body.client, "sent a heartbeat", Evidence.PEER)
            case IsrChangeJudged() if state.is_old(body.client):
                return _broken(event, body.client, "sent an IsrChange", Evidence.PEER)
            case BrokerStateChanged(reason="controller_silent") if state.is_old(event.process):
                return _broken(event, event.process, "fenced itself", Evidence.SELF)
            case PartitionCommitted(role="broker") if state.is_old(event.process):
                return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING


def _broken(event: Event, process: str, did: str, evidence: Evidence) -> Findings:
    broken = violated(
        event.ref,
        evidence,
        "{process} {did}, though its inter-broker protocol has no heartbeats",
        process=process_scope(process),
        did=did,
    )
    return (broken,)
