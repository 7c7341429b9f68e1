"""The rules of etcd's clauses: pure folds over the events of one key."""

from __future__ import annotations

from typing import Any

from fencepost import Rule
from fencepost_clusters.etcd.rules.lasting import KeysLastAsTheirLease
from fencepost_clusters.etcd.rules.leaders import OneLeaderATerm
from fencepost_clusters.etcd.rules.leases import ExpiredKeysAreGone
from fencepost_clusters.etcd.rules.locks import OldHoldersAreRefused, TokensGrow
from fencepost_clusters.etcd.rules.registers import (
    AcknowledgedWritesStay,
    KeysAreLinearizable,
    RevisionsAreUnique,
)

ALL: tuple[Rule[Any], ...] = (
    OneLeaderATerm(),
    AcknowledgedWritesStay(),
    RevisionsAreUnique(),
    KeysAreLinearizable(),
    ExpiredKeysAreGone(),
    KeysLastAsTheirLease(),
    TokensGrow(),
    OldHoldersAreRefused(),
)
