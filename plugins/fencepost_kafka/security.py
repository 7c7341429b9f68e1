"""Security of Kafka's listeners as a client sees it: names, and how one user gets in.

A cluster's security is one of `SECURITIES`, by the name of Kafka's protocol and, behind a slash,
the mechanism of SASL where it is not SCRAM-SHA-512:

    SSL                  TLS both ways: a user is the common name of a certificate
    SASL_SSL             TLS, and a password by SCRAM-SHA-512
    SASL_SSL/PLAIN       TLS, and a password by PLAIN
    SASL_PLAINTEXT       a password by SCRAM-SHA-512, and bytes that anybody can read
    SASL_PLAINTEXT/PLAIN the same by PLAIN

A run's secrets are files in one folder (`fencepost.WorkerConfig.secrets`):

    ca.pem            the certificate of the authority that signed all others
    <user>.pem        the key of a user, and its certificate
    <user>.password   the password of a user

The users are the slots of the layout, by their names, and `STRANGER`, who may do nothing. Every
listener with SASL takes PLAIN beside SCRAM, so that a program without a library of Kafka gets in by
two short messages (`log_in`).
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fencepost import WorkerConfig, no_such

SCRAM = "SCRAM-SHA-512"
PLAIN = "PLAIN"
STRANGER = "stranger"
"""A user whom a cluster knows, and who has no right to anything."""
AUTHORITY = "ca.pem"
_HANDSHAKE, _AUTHENTICATE = 17, 36
"""The keys of SaslHandshake and SaslAuthenticate."""
_MOST_BYTES = 1 << 20


@final
@dataclass(frozen=True, slots=True)
class Security:
    """How listeners are secured: Kafka's protocol, and the mechanism of SASL (empty: none)."""

    protocol: str
    mechanism: str = ""

    @property
    def tls(self) -> bool:
        """Whether links carry TLS, whose bytes nobody between the ends can read."""
        return self.protocol.endswith("SSL")

    @property
    def certified(self) -> bool:
        """Whether a client shows a certificate, by which it is known."""
        return self.protocol == "SSL"


SECURITIES: Mapping[str, Security] = {
    "SSL": Security("SSL"),
    "SASL_SSL": Security("SASL_SSL", SCRAM),
    "SASL_SSL/PLAIN": Security("SASL_SSL", PLAIN),
    "SASL_PLAINTEXT": Security("SASL_PLAINTEXT", SCRAM),
    "SASL_PLAINTEXT/PLAIN": Security("SASL_PLAINTEXT", PLAIN),
}
"""Every security, by its name in `Shape.security`."""


def security_named(name: str) -> Security:
    """That security; raises UsageError for an unknown name."""
    if name not in SECURITIES:
        raise no_such("security", name, SECURITIES)
    return SECURITIES[name]


@final
@dataclass(frozen=True, slots=True)
class Access:
    """How one user gets into a secured cluster; `secrets` is the folder of the run's secrets."""

    security: Security
    secrets: Path
    user: str

    @property
    def authority(self) -> Path:
        """The file of the certificate that signed those of all nodes."""
        return self.secrets / AUTHORITY

    @property
    def certificate(self) -> Path:
        """The file of the user's key and certificate."""
        return self.secrets / f"{self.user}.pem"

    def password(self) -> str:
        """The user's password."""
        return (self.secrets / f"{self.user}.password").read_text()

    def librdkafka(self) -> dict[str, str]:
        """The settings of a client that is made with librdkafka, such as confluent-kafka's."""
        security = self.security
        found = {"security.protocol": security.protocol}
        if security.tls:
            found["ssl.ca.location"] = str(self.authority)
        if security.certified:
            found["ssl.certificate.location"] = found["ssl.key.location"] = str(self.certificate)
        if security.mechanism:
            found |= {
                "sasl.mechanism": security.mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password(),
            }
        return found

    def java(self) -> dict[str, str]:
        """The settings of a client of Kafka's Java library, 2.7 or newer."""
        security = self.security
        found = {"security.protocol": security.protocol}
        if security.tls:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority)}
        if security.certified:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.certificate)}
        if security.mechanism:
            found |= {
                "sasl.mechanism": security.mechanism,
                "sasl.jaas.config": login(security.mechanism, self.user, self.password()),
            }
        return found

    def java_properties(self) -> str:
        """The same as the text of a properties file; it contains the password."""
        return "".join(f"{name}={_escaped(value)}\n" for name, value in self.java().items())

    def connect(self, address: tuple[str, int], limit_s: float) -> socket.socket:
        """A connection on which requests can be sent at once.

        Each step of it may take `limit_s` seconds. Raises OSError where a node does not answer, has
        a certificate of another authority, or refuses the user.
        """
        connection = self.encrypted(address, limit_s)
        try:
            if self.security.mechanism:
                log_in(connection, self.user, self.password())
        except BaseException:
            connection.close()
            raise
        return connection

    def encrypted(self, address: tuple[str, int], limit_s: float) -> socket.socket:
        """A connection as `connect` makes it, on which the user has not logged in."""
        connection = socket.create_connection(address, limit_s)
        try:
            connection.settimeout(limit_s)
            if not self.security.tls:
                return connection
            context = ssl.create_default_context(cafile=self.authority)
            if self.security.certified:
                context.load_cert_chain(self.certificate)
            return context.wrap_socket(connection, server_hostname=address[0])
        except BaseException:
            connection.close()
            raise


def access_of(config: WorkerConfig, user: str = "") -> Access | None:
    """How a worker of that configuration gets in, as the user of its slot unless another is named;
    None: the cluster is open."""
    if not config.security:
        return None
    return Access(security_named(config.security), Path(config.secrets), user or config.slot)


def connected(access: Access | None, address: tuple[str, int], limit_s: float) -> socket.socket:
    """A connection for requests, to a secured cluster or to an open one. Raises OSError."""
    if access is not None:
        return access.connect(address, limit_s)
    connection = socket.create_connection(address, limit_s)
    connection.settimeout(limit_s)
    return connection


def login(mechanism: str, user: str, password: str, more: str = "") -> str:
    """The login of one user in the words of JAAS, which Kafka reads; `more` are further options."""
    module = "plain.Plain" if mechanism == PLAIN else "scram.Scram"
    named = f'username="{user}" password="{password}"'
    return (
        f"org.apache.kafka.common.security.{module}LoginModule required {named}"
        f"{f' {more}' if more else ''};"
    )


def _escaped(value: str) -> str:
    """As `java.util.Properties` reads it: a path may have any character."""
    return "".join(
        one if " " <= one <= "~" and one != "\\" else f"\\u{unit:04x}"
        for one in value
        for unit in struct.unpack(f">{len(one.encode('utf-16-be')) // 2}H", one.encode("utf-16-be"))
    )


def log_in(connection: socket.socket, user: str, password: str) -> None:
    """Logs in by PLAIN; raises OSError if the node refuses, or does not answer."""
    mechanism = PLAIN.encode()
    _ask(connection, _HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism)
    token = f"\0{user}\0{password}".encode()
    _ask(connection, _AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)


def _ask(connection: socket.socket, api: int, version: int, body: bytes) -> None:
    """Sends one request, and reads its answer, which begins with an error code."""
    request = struct.pack(">hhih", api, version, 0, -1) + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    size = int.from_bytes(receive(connection, 4))
    if not 6 <= size <= _MOST_BYTES:
        raise ConnectionAbortedError(f"an answer of {size} bytes is none of Kafka's")
    answer = receive(connection, size)
    (error,) = struct.unpack(">h", answer[4:6])
    if error:
        raise PermissionError(f"the node refused the login with the error {error}")


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly that many bytes; raises OSError if the connection ends earlier."""
    got = b""
    while len(got) < size:
        more = connection.recv(size - len(got))
        # The end of the stream in the middle of an answer: the answer is worth nothing.
        if not more:
            raise ConnectionResetError("end of stream")
        got += more
    return got
