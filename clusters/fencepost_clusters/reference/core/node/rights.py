"""The users of a cluster, and which of them may command controllers (QC-04)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fencepost import UsageError, no_such

PLAIN = "PLAIN"


@dataclass(frozen=True, slots=True)
class Rights:
    """SASL/PLAIN as configured: users with their passwords, those of them with cluster-action
    rights, and the user as which this node calls controllers."""

    users: Mapping[str, str] = field(default_factory=dict)
    super_users: frozenset[str] = frozenset()
    username: str = ""
    password: str = ""

    @property
    def wanted(self) -> bool:
        """Whether controllers require each connection to prove its user."""
        return bool(self.users)

    def knows(self, username: str, password: str) -> bool:
        """Whether name and password belong to a user."""
        return self.users.get(username) == password

    def cluster_action(self, principal: str) -> bool:
        """Whether a user (empty: unproved) may send requests to a controller."""
        return not self.wanted or principal in self.super_users


def read(properties: Mapping[str, str]) -> Rights:
    """The rights in a node's properties; none are required unless PLAIN is enabled.

    Raises UsageError for another mechanism, and for an incomplete configuration of PLAIN.
    """
    mechanism = properties.get("sasl.enabled.mechanisms", "")
    if not mechanism:
        return Rights()
    if mechanism != PLAIN:
        raise no_such("SASL mechanism", mechanism, (PLAIN,))
    users: dict[str, str] = {}
    for entry in filter(None, properties.get("sasl.plain.users", "").split(",")):
        name, colon, password = entry.partition(":")
        if not (name and colon and password):
            raise UsageError("sasl.plain.users wants name:password, one after another")
        users[name] = password
    super_users = frozenset(filter(None, properties.get("super.users", "").split(",")))
    username = properties.get("sasl.username", "")
    password = properties.get("sasl.password", "")
    # A node that controllers refuse would never join, so this is refused before the node starts.
    if users.get(username) != password or username not in super_users:
        raise UsageError("sasl.username and sasl.password must be those of one of super.users")
    return Rights(users, super_users, username, password)
