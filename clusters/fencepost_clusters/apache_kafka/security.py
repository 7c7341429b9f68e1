"""Security of Apache Kafka's nodes in KRaft mode: the shape of it, the secrets, the settings.

    Shape(security="SASL_SSL")

secures every listener, of clients, brokers and controllers, in one of the ways that
`fencepost_kafka.security` names. What that means for a node:

Users. Each slot is a user by its name; nodes and the clients' slot are super users, as
administrators are. One more user, `stranger`, has no right to anything. The authorizer is Kafka's
StandardAuthorizer, and refuses whoever has no right. It logs each refusal, which becomes the event
`kafka.operation_refused`.

TLS. Each run has an authority of its own, which signs one certificate for each user. A node's
certificate names the node, its address, and its end of every link, so that everybody checks whom
they talk to, as in a cluster without links. With `SSL` a client must show a certificate, and
its common name is the user; elsewhere only nodes have one.

SASL. Clients and brokers log in by SCRAM-SHA-512 (or PLAIN, if asked for). Kafka keeps what it
checks a SCRAM password by in its metadata, and a controller has none before it talked to the
others. So the listeners of controllers take PLAIN, whose passwords are in the configuration of each
node. The SCRAM users are records of the metadata that a disk begins with, as those of
`kafka-storage format --add-scram` are, which exists from Kafka 3.5 on. They are there before the
first broker is: no client waits for them.

Secrets. Keys and passwords are made for one run, and are in a folder of their own (`Secured`). The
configuration of a node, which is kept with the run, only names these files: it reads passwords
through Kafka's DirectoryConfigProvider. No secret is in an argument.

What is not secured: the metrics pages, which no node reads.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets as random_secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from fencepost import EnvironmentFailed, Layout, Place, UsageError
from fencepost_clusters.apache_kafka.certificates import Authority
from fencepost_kafka import Role
from fencepost_kafka.layout import listener_of
from fencepost_kafka.security import (
    AUTHORITY,
    PLAIN,
    SCRAM,
    STRANGER,
    Access,
    Security,
    login,
)

SCRAM_SINCE = (3, 5)
"""The first release whose disks can begin with users of SCRAM."""
_ITERATIONS = 4096
_SALT_BYTES = 24
_RECORDS = "scram.json"
"""The file of the records of the users of SCRAM. All controllers begin with the same bytes, so the
records are made once."""
_RECORD_KEY, _SHA_512 = 11, 2
"""The key of UserScramCredentialRecord, and Kafka's number of SCRAM-SHA-512."""
_CONTROLLER = "controller"
_OF_BROKERS = ("client", "replication")
"""The listeners of a broker."""


def check_release(system: str, security: Security, release: tuple[int, ...]) -> None:
    """Raises UsageError for a release that has no users of SCRAM in KRaft mode."""
    if security.mechanism == SCRAM and release < SCRAM_SINCE:
        since = ".".join(map(str, SCRAM_SINCE))
        raise UsageError(
            f"{system} keeps no passwords of SCRAM, as Kafka does from {since} on in KRaft mode: "
            f"use {security.protocol}/{PLAIN}, or SSL"
        )


def secured_layout(layout: Layout, security: Security | None) -> Layout:
    """The layout of a cluster that is secured so: what can be done with messages in its links."""
    if security is None:
        return layout
    if security.tls:
        # The toxic that holds messages would look for their lengths in TLS.
        return replace(layout, framed=frozenset(), sealed="TLS")
    return replace(layout, logs_in=True)


def users(layout: Layout) -> Sequence[str]:
    """Everybody whom a cluster knows, by name: each slot, and a stranger."""
    return (*(slot.name for slot in layout.slots), STRANGER)


def make_secrets(
    security: Security, layout: Layout, addresses: Mapping[str, Sequence[str]], now: datetime
) -> Mapping[str, str]:
    """The secrets of one run by the names of their files, made anew; see the module."""
    made: dict[str, str] = {}
    known = users(layout)
    if security.tls:
        authority = Authority.new("Fencepost", now)
        made[AUTHORITY] = authority.pem()
        for user in known:
            made[f"{user}.pem"] = authority.issue(user, [user, *addresses.get(user, ())], now)
    if security.mechanism:
        passwords = {user: random_secrets.token_urlsafe(24) for user in known}
        table = " ".join(f'user_{user}="{word}"' for user, word in passwords.items())
        for user, word in passwords.items():
            made[f"{user}.password"] = word
            made[_login_file(user, PLAIN)] = login(PLAIN, user, word, table)
            if security.mechanism == SCRAM:
                made[_login_file(user, SCRAM)] = login(SCRAM, user, word)
        if security.mechanism == SCRAM:
            records = [
                scram_record(user, word, random_secrets.token_bytes(_SALT_BYTES)).hex()
                for user, word in passwords.items()
            ]
            made[_RECORDS] = json.dumps(records)
    return made


def scram_records(secrets: Path | None) -> Sequence[bytes]:
    """The records with which the metadata of a run begins that has these secrets; maybe none."""
    if secrets is None or not (found := secrets / _RECORDS).exists():
        return ()
    return [bytes.fromhex(record) for record in json.loads(found.read_text())]


def node_settings(security: Security, place: Place, secrets: Path) -> dict[str, str]:
    """The settings of the node in a place; none of them has a secret in it.

    Raises EnvironmentFailed for a folder of secrets that Kafka cannot be told.
    """
    own = place.slot.name
    found = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(f"User:{slot.name}" for slot in place.layout.slots),
    }
    if security.tls:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(secrets / f"{own}.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(secrets / AUTHORITY),
        }
    if security.certified:
        found |= {
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/,DEFAULT",
        }
    if security.mechanism:
        found |= _sasl(security.mechanism, place, secrets)
    return found


def _sasl(mechanism: str, place: Place, secrets: Path) -> dict[str, str]:
    # `${directory:PATH:FILE}` has no way to write these.
    if {":", "}"} & {*str(secrets)}:
        raise EnvironmentFailed(
            f"Kafka can read no secret below {secrets}, for the ':' or '}}' in it: set TMPDIR to "
            "another folder"
        )
    mechanisms = sorted({mechanism, PLAIN})
    listeners = {_CONTROLLER: [PLAIN]}
    if place.slot.role is Role.BROKER:
        apps = [listener_of(one.slot).lower() for one in place.listeners]
        listeners |= dict.fromkeys([*_OF_BROKERS, *apps], mechanisms)
    found = {
        "config.providers": "directory",
        "config.providers.directory.class": (
            "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
        ),
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "sasl.mechanism.controller.protocol": PLAIN,
    }
    for listener, taken in listeners.items():
        prefix = f"listener.name.{listener}"
        found[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(taken)
        for one in taken:
            file = _login_file(place.slot.name, one)
            found[f"{prefix}.{one.lower()}.sasl.jaas.config"] = f"${{directory:{secrets}:{file}}}"
    return found


def protocol_map(security: Security | None, place: Place) -> str:
    """The protocol of each listener of a node; without a security all are open."""
    protocol = "PLAINTEXT" if security is None else security.protocol
    apps = [listener_of(one.slot) for one in place.listeners]
    return ",".join(f"{name}:{protocol}" for name in ("CLIENT", "REPLICATION", "CONTROLLER", *apps))


def client_files(security: Security, secrets: Path, user: str) -> Mapping[str, str]:
    """The files by which a program gets in as a user, by their names: for Kafka's Java library,
    and for one that is made with librdkafka."""
    access = Access(security, secrets, user)
    return {
        f"{user}.properties": access.java_properties(),
        f"{user}.librdkafka.json": json.dumps(access.librdkafka()),
    }


def scram_record(user: str, password: str, salt: bytes) -> bytes:
    """A UserScramCredentialRecord, as a value of the metadata log. Each user has another salt."""
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    stored = hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
    server = hmac.digest(salted, b"Server Key", "sha512")
    # A value begins with the version of its frame, the key of its kind, and that kind's version.
    # Lengths are in one byte each, since none is above 126; the last byte says that no tag follows.
    head = bytes([1, _RECORD_KEY, 0])
    fields = b"".join(bytes([len(one) + 1]) + one for one in (salt, stored, server))
    name = user.encode()
    return (
        head
        + bytes([len(name) + 1])
        + name
        + bytes([_SHA_512])
        + fields
        + _ITERATIONS.to_bytes(4, "big")
        + b"\0"
    )


def _login_file(user: str, mechanism: str) -> str:
    """The file of a user's login in the words of JAAS."""
    return f"{user}.{mechanism.lower()}"
