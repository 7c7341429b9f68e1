"""Converts frames to plain messages and back, through kio's entities, for every served API and
version.

Each listener has a table of the APIs that it serves. Clients see Kafka's client APIs only. The
inter-node listeners have a table of their own, where 50 and 51 are KIP-631's heartbeats and are
never advertised. One conversion serves all versions: fields are matched by name, and a field that a
version lacks has the plain message's default.

See docs/decisions/41-kafka-messages.md.
"""

from __future__ import annotations

import io
import struct
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import timedelta
from functools import cache
from typing import Any

import msgspec
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import guard, heartbeats, legacy, rebalance, ungrouped
from fencepost_clusters.reference.wire import legacy_schemas as z
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error

_PREFIX = struct.Struct(">hhi")
MAX_FRAME_BYTES = 64 * 1024 * 1024
API_VERSIONS = 18


@dataclass(frozen=True, slots=True)
class Api:
    """One API of a listener: its key, plain classes, versions served. Calls use the newest version,
    or, for a request without a broker epoch, the version that has none (`ungrouped`)."""

    key: int
    request: type
    response: type
    min_version: int
    max_version: int

    @property
    def name(self) -> str:
        return self.request.__name__.removesuffix("Request")


CLIENT_APIS = (
    Api(0, m.ProduceRequest, m.ProduceResponse, 3, 7),
    Api(1, m.FetchRequest, m.FetchResponse, 4, 12),
    Api(2, m.ListOffsetsRequest, m.ListOffsetsResponse, 1, 7),
    Api(3, m.MetadataRequest, m.MetadataResponse, 2, 12),
    Api(8, m.OffsetCommitRequest, m.OffsetCommitResponse, 2, 7),
    Api(9, m.OffsetFetchRequest, m.OffsetFetchResponse, 1, 5),
    Api(10, m.FindCoordinatorRequest, m.FindCoordinatorResponse, 0, 2),
    Api(11, m.JoinGroupRequest, m.JoinGroupResponse, 2, 5),
    Api(18, m.ApiVersionsRequest, m.ApiVersionsResponse, 0, 3),
    Api(19, m.CreateTopicsRequest, m.CreateTopicsResponse, 2, 7),
    Api(20, m.DeleteTopicsRequest, m.DeleteTopicsResponse, 1, 3),
    Api(22, m.InitProducerIdRequest, m.InitProducerIdResponse, 0, 1),
    Api(23, m.OffsetForLeaderEpochRequest, m.OffsetForLeaderEpochResponse, 2, 3),
    Api(35, a.DescribeLogDirsRequest, a.DescribeLogDirsResponse, 1, 4),
    Api(37, a.CreatePartitionsRequest, a.CreatePartitionsResponse, 0, 3),
    Api(32, a.DescribeConfigsRequest, a.DescribeConfigsResponse, 1, 4),
    Api(43, a.ElectLeadersRequest, a.ElectLeadersResponse, 1, 2),
    Api(44, a.IncrementalAlterConfigsRequest, a.IncrementalAlterConfigsResponse, 0, 1),
    Api(45, a.AlterPartitionReassignmentsRequest, a.AlterPartitionReassignmentsResponse, 0, 0),
    Api(46, a.ListPartitionReassignmentsRequest, a.ListPartitionReassignmentsResponse, 0, 0),
    Api(55, a.DescribeQuorumRequest, a.DescribeQuorumResponse, 0, 2),
    Api(64, a.UnregisterBrokerRequest, a.UnregisterBrokerResponse, 0, 0),
    Api(rebalance.KEY, a.RebalanceRequest, a.RebalanceResponse, 0, 0),
    Api(80, a.AddRaftVoterRequest, a.AddRaftVoterResponse, 0, 0),
    Api(81, a.RemoveRaftVoterRequest, a.RemoveRaftVoterResponse, 0, 0),
)
"""The APIs that clients are offered; the versions were found by trials with librdkafka,
kafka-python and aiokafka. Fetch ends before the version that names topics by id alone (KIP-516).
librdkafka's request for all topics cannot be read in Metadata 9 and 10: it must be offered a newer
one."""

CONTROLLER_APIS = (
    Api(17, m.SaslHandshakeRequest, m.SaslHandshakeResponse, 1, 1),
    Api(36, m.SaslAuthenticateRequest, m.SaslAuthenticateResponse, 0, 2),
    Api(1, m.FetchRequest, m.FetchResponse, 16, 16),
    Api(18, m.ApiVersionsRequest, m.ApiVersionsResponse, 0, 3),
    Api(19, m.CreateTopicsRequest, m.CreateTopicsResponse, 5, 7),
    Api(20, m.DeleteTopicsRequest, m.DeleteTopicsResponse, 4, 4),
    Api(37, a.CreatePartitionsRequest, a.CreatePartitionsResponse, 3, 3),
    Api(50, m.BrokerHeartbeatRequest, m.BrokerHeartbeatResponse, 0, 0),
    Api(51, m.ControllerHeartbeatRequest, m.ControllerHeartbeatResponse, 0, 0),
    Api(52, m.VoteRequest, m.VoteResponse, 0, 0),
    Api(53, m.BeginQuorumEpochRequest, m.BeginQuorumEpochResponse, 0, 0),
    Api(54, m.EndQuorumEpochRequest, m.EndQuorumEpochResponse, 0, 0),
    Api(43, a.ElectLeadersRequest, a.ElectLeadersResponse, 2, 2),
    Api(44, a.IncrementalAlterConfigsRequest, a.IncrementalAlterConfigsResponse, 1, 1),
    Api(45, a.AlterPartitionReassignmentsRequest, a.AlterPartitionReassignmentsResponse, 0, 0),
    Api(46, a.ListPartitionReassignmentsRequest, a.ListPartitionReassignmentsResponse, 0, 0),
    Api(55, a.DescribeQuorumRequest, a.DescribeQuorumResponse, 2, 2),
    Api(56, m.AlterPartitionRequest, m.AlterPartitionResponse, 3, 3),
    Api(59, m.FetchSnapshotRequest, m.FetchSnapshotResponse, 0, 0),
    Api(64, a.UnregisterBrokerRequest, a.UnregisterBrokerResponse, 0, 0),
    Api(rebalance.KEY, a.RebalanceRequest, a.RebalanceResponse, 0, 0),
    Api(80, a.AddRaftVoterRequest, a.AddRaftVoterResponse, 0, 0),
    Api(81, a.RemoveRaftVoterRequest, a.RemoveRaftVoterResponse, 0, 0),
)
REPLICATION_APIS = (
    Api(1, m.FetchRequest, m.FetchResponse, 16, 16),
    Api(18, m.ApiVersionsRequest, m.ApiVersionsResponse, 0, 3),
    Api(50, m.BrokerHeartbeatRequest, m.BrokerHeartbeatResponse, 0, 0),
    Api(51, m.ControllerHeartbeatRequest, m.ControllerHeartbeatResponse, 0, 0),
)

LEGACY_APIS = (
    Api(1, m.FetchRequest, m.FetchResponse, 16, 16),
    Api(18, m.ApiVersionsRequest, m.ApiVersionsResponse, 0, 3),
    Api(z.LEADER_AND_ISR, legacy.LeaderAndIsrRequest, legacy.LeaderAndIsrResponse, 1, 2),
    Api(z.STOP_REPLICA, legacy.StopReplicaRequest, legacy.StopReplicaResponse, 0, 1),
    Api(z.UPDATE_METADATA, legacy.UpdateMetadataRequest, legacy.UpdateMetadataResponse, 4, 5),
    Api(
        z.CONTROLLED_SHUTDOWN, legacy.ControlledShutdownRequest,
        legacy.ControlledShutdownResponse, 1, 2,
    ),
    Api(
        z.METADATA_HEARTBEAT, legacy.MetadataHeartbeatRequest,
        legacy.MetadataHeartbeatResponse, 0, 0,
    ),
    Api(z.ISR_CHANGE, legacy.IsrChangeRequest, legacy.IsrChangeResponse, 0, 0),
    Api(19, m.CreateTopicsRequest, m.CreateTopicsResponse, 5, 7),
    Api(20, m.DeleteTopicsRequest, m.DeleteTopicsResponse, 4, 4),
    Api(37, a.CreatePartitionsRequest, a.CreatePartitionsResponse, 3, 3),
    Api(43, a.ElectLeadersRequest, a.ElectLeadersResponse, 2, 2),
    Api(44, a.IncrementalAlterConfigsRequest, a.IncrementalAlterConfigsResponse, 1, 1),
    Api(45, a.AlterPartitionReassignmentsRequest, a.AlterPartitionReassignmentsResponse, 0, 0),
    Api(46, a.ListPartitionReassignmentsRequest, a.ListPartitionReassignmentsResponse, 0, 0),
    Api(rebalance.KEY, a.RebalanceRequest, a.RebalanceResponse, 0, 0),
)  # fmt: skip
"""The APIs between nodes of the plane over ZooKeeper."""

Listeners = Mapping[str, Mapping[int, Api]]
LISTENERS: Listeners = {
    "CLIENT": {api.key: api for api in CLIENT_APIS},
    "CONTROLLER": {api.key: api for api in CONTROLLER_APIS},
    "REPLICATION": {api.key: api for api in REPLICATION_APIS},
}
"""The APIs that the quorum's nodes serve, by listener and API key."""
_OF_QUORUMS = (
    a.DescribeQuorumRequest,
    a.UnregisterBrokerRequest,
    a.AddRaftVoterRequest,
    a.RemoveRaftVoterRequest,
)
LEGACY_LISTENERS: Listeners = {
    "CLIENT": {api.key: api for api in CLIENT_APIS if api.request not in _OF_QUORUMS},
    "REPLICATION": {api.key: api for api in LEGACY_APIS},
}
"""The APIs that nodes over ZooKeeper serve."""
CLASSIC_APIS = (
    Api(1, m.FetchRequest, m.FetchResponse, 16, 16),
    Api(18, m.ApiVersionsRequest, m.ApiVersionsResponse, 0, 3),
)
"""The APIs between nodes of the plane without a controller: they need nothing but fetches."""
CLASSIC_LISTENERS: Listeners = {
    "CLIENT": LEGACY_LISTENERS["CLIENT"],
    "REPLICATION": {api.key: api for api in CLASSIC_APIS},
}
"""The APIs that nodes of that plane serve."""
Calls = Mapping[type, Api]
NODE_CALLS: Calls = {api.request: api for api in (*REPLICATION_APIS, *CONTROLLER_APIS)}
LEGACY_CALLS: Calls = {api.request: api for api in LEGACY_APIS}
CLASSIC_CALLS: Calls = {api.request: api for api in CLASSIC_APIS}
CLIENT_CALLS: Calls = {api.request: api for api in CLIENT_APIS}
"""The API of each request that is sent: by a node to another, and by a client core to a broker."""

OVER_ZOOKEEPER: Mapping[str, tuple[Listeners, Calls]] = {
    "": (LEGACY_LISTENERS, LEGACY_CALLS),
    "classic": (CLASSIC_LISTENERS, CLASSIC_CALLS),
}
"""What the nodes over ZooKeeper serve and send, by `Settings.plane`."""

_SEED_REQUESTS = {
    50: heartbeats.BrokerHeartbeatRequest,
    51: heartbeats.ControllerHeartbeatRequest,
    rebalance.KEY: rebalance.RebalanceRequest,
    z.LEADER_AND_ISR: z.LeaderAndIsrRequest,
    z.STOP_REPLICA: z.StopReplicaRequest,
    z.UPDATE_METADATA: z.UpdateMetadataRequest,
    z.CONTROLLED_SHUTDOWN: z.ControlledShutdownRequest,
    z.METADATA_HEARTBEAT: z.MetadataHeartbeatRequest,
    z.ISR_CHANGE: z.IsrChangeRequest,
}
_SEED_RESPONSES = {
    50: heartbeats.BrokerHeartbeatResponse,
    51: heartbeats.ControllerHeartbeatResponse,
    rebalance.KEY: rebalance.RebalanceResponse,
    z.LEADER_AND_ISR: z.LeaderAndIsrResponse,
    z.STOP_REPLICA: z.StopReplicaResponse,
    z.UPDATE_METADATA: z.UpdateMetadataResponse,
    z.CONTROLLED_SHUTDOWN: z.ControlledShutdownResponse,
    z.METADATA_HEARTBEAT: z.MetadataHeartbeatResponse,
    z.ISR_CHANGE: z.IsrChangeResponse,
}


class Unsupported(ValueError):
    """A request for an API or version that the listener does not serve."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of every request."""

    api: Api
    version: int
    correlation: int
    client: str


def decode_request(
    listener: str, frame: bytes, listeners: Listeners = LISTENERS
) -> tuple[Header, m.Request]:
    """A request frame (without its length) as a header and a plain message.

    Extra bytes at the end are ignored: librdkafka sends some. Raises Unsupported, or
    guard.Malformed for bytes that are no such request.
    """
    if len(frame) < _PREFIX.size:
        raise guard.Malformed("shorter than any request header")
    key, version, correlation = _PREFIX.unpack_from(frame)
    api = listeners[listener].get(key)
    if api is None:
        raise Unsupported(f"API {key} is not served on the {listener} listener")
    if not api.min_version <= version <= api.max_version:
        if key == API_VERSIONS:  # answered nevertheless, in the oldest layout (KIP-511)
            return Header(api, -1, correlation, ""), m.ApiVersionsRequest()
        raise Unsupported(f"version {version} of {api.name} is not served")
    schema = _request_schema(key, version)
    try:
        header, body = _read(schema, frame)
        earlier = ungrouped.written_in(key, version)
        if earlier is None:
            plain = _from_entity(schema, api.request)(body)
        else:
            plain = earlier.group(_from_entity(schema, earlier.plain)(body))
    except guard.Malformed:
        raise
    except Exception as error:  # kio raises four exceptions of its own, and ValueError and KeyError
        raise guard.Malformed(f"{api.name}: {error!r}") from error
    return Header(api, version, correlation, header.client_id or ""), plain


def encode_response(header: Header, response: m.Response) -> bytes:
    """The frame, its length included, that answers a request."""
    # The version -1 marks an ApiVersions request of a version that is not known: it is answered in
    # version 0.
    version = max(0, header.version)
    schema = _response_schema(header.api.key, version)
    entity = _to_entity(header.api.response, schema)(response)
    return _frame(schema, {"correlation_id": header.correlation}, entity)


def encode_request(
    client: str, correlation: int, request: m.Request, calls: Calls = NODE_CALLS
) -> bytes:
    """The frame of a request, by the APIs in `calls`, its length included."""
    api = calls[type(request)]
    earlier = ungrouped.needed_for(api.key, request)
    version = api.max_version if earlier is None else earlier.version
    schema = _request_schema(api.key, version)
    names = {
        "request_api_key": api.key,
        "request_api_version": version,
        "correlation_id": correlation,
        "client_id": client,
    }
    if earlier is None:
        return _frame(schema, names, _to_entity(api.request, schema)(request))
    return _frame(schema, names, _to_entity(earlier.plain, schema)(earlier.ungroup(request)))


def decode_response(
    request: type, frame: bytes, calls: Calls = NODE_CALLS
) -> tuple[int, m.Response]:
    """The correlation id and plain response in a frame that answers a request of that class.

    Raises guard.Malformed.
    """
    api = calls[request]
    # Requests without a broker epoch go out in an older version; their answers have one layout in
    # both.
    schema = _response_schema(api.key, api.max_version)
    try:
        header, body = _read(schema, frame)
        return header.correlation_id, _from_entity(schema, api.response)(body)
    except guard.Malformed:
        raise
    except Exception as error:
        raise guard.Malformed(f"{api.name}: {error!r}") from error


def api_versions(
    listener: str, header: Header, listeners: Listeners = LISTENERS
) -> m.ApiVersionsResponse:
    """The answer to ApiVersions; the heartbeats of KIP-631 share their keys with other APIs of
    Kafka's, so no listener advertises them."""
    apis = listeners[listener].values()
    return m.ApiVersionsResponse(
        error_code=Error.UNSUPPORTED_VERSION if header.version < 0 else Error.NONE,
        api_keys=tuple(
            m.ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in apis
            if api.key not in _SEED_REQUESTS
        ),
    )


# --------------------------------------------------------------------------------------- entities


@cache
def _request_schema(key: int, version: int) -> Any:
    earlier = ungrouped.written_in(key, version)
    if earlier is not None:
        return earlier.schema
    return _SEED_REQUESTS.get(key) or load_request_schema(key, version)


@cache
def _response_schema(key: int, version: int) -> Any:
    return _SEED_RESPONSES.get(key) or load_response_schema(key, version)


def _read(schema: Any, frame: bytes) -> tuple[Any, Any]:
    header_schema = schema.__header_schema__
    guard.check(header_schema, frame, 0)
    header, at = entity_reader(header_schema)(frame, 0)
    body, _ = entity_reader(schema)(guard.known_part(schema, frame[at:]), 0)
    return header, body


def _frame(schema: Any, header: dict[str, object], body: object) -> bytes:
    buffer = io.BytesIO()
    buffer.write(b"\0\0\0\0")
    header_schema = schema.__header_schema__
    entity_writer(header_schema)(buffer, header_schema(**header))
    entity_writer(schema)(buffer, body)
    view = buffer.getbuffer()
    # The length is known only once the body is written.
    view[:4] = (len(view) - 4).to_bytes(4, "big")
    del view
    return buffer.getvalue()


Convert = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _milliseconds(value: timedelta) -> int:
    return round(value.total_seconds() * 1000)


def _timedelta(value: int) -> timedelta:
    return timedelta(milliseconds=value)


def _nested(kind: Any) -> tuple[Any, bool]:
    """The class inside a field's type, and whether the field holds a tuple of it."""
    for one in (kind, *typing.get_args(kind)):
        if typing.get_origin(one) is tuple:
            inner = [x for x in typing.get_args(one) if x is not Ellipsis]
            return (inner[0] if inner else None), True
    plain = [x for x in typing.get_args(kind) if x is not type(None)]
    return (plain[0] if plain else kind), False


def _each(convert: Convert, many: bool) -> Convert:
    if many:
        return lambda value: None if value is None else tuple([convert(item) for item in value])
    return lambda value: None if value is None else convert(value)


def _is_entity(kind: Any) -> bool:
    return hasattr(kind, "__flexible__")


@cache
def _from_entity(entity: Any, plain: Any) -> Convert:
    known = {one.name: one for one in fields(entity)}
    plan: list[tuple[str, Convert]] = []
    for one in msgspec.structs.fields(plain):
        source = known.get(one.name)
        if source is None or one.type is type(None):  # the plain message leaves this field out
            if one.required:
                raise TypeError(f"{entity.__name__} has no {one.name}, which {plain} needs")
            plan.append((one.name, _constant(one.default)))
            continue
        inner, many = _nested(source.type)
        if _is_entity(inner):
            convert = _each(_from_entity(inner, _nested(one.type)[0]), many)
        elif str(source.metadata.get("kafka_type", "")).startswith("timedelta"):
            convert = _milliseconds
        else:
            convert = _same
        if (many or _nullable(source.type)) and not _nullable(one.type):
            convert = _never_null(one.name, convert)
        plan.append((one.name, _getter(one.name, convert)))
    return lambda value: plain(**{name: get(value) for name, get in plan})


def _nullable(kind: Any) -> bool:
    return type(None) in typing.get_args(kind)


def _never_null(name: str, convert: Convert) -> Convert:
    """Raises for a null array where none is allowed: kio accepts null for any array, but most
    arrays here must not be null."""

    def checked(value: Any) -> Any:
        if value is None:
            raise guard.Malformed(f"{name} is null")
        return convert(value)

    return checked


def _constant(value: Any) -> Convert:
    return lambda _: value


def _getter(name: str, convert: Convert) -> Convert:
    if convert is _same:
        return lambda value: getattr(value, name)
    return lambda value: convert(getattr(value, name))


_ZERO = {
    "string": "",
    "bool": False,
    "timedelta_i32": timedelta(),
    "timedelta_i64": timedelta(),
    "uuid": None,
    "error_code": ErrorCode.none,
}


@cache
def _to_entity(plain: Any, entity: Any) -> Convert:
    known = {one.name: one for one in msgspec.structs.fields(plain)}
    constants: dict[str, Any] = {}
    plan: list[tuple[str, Convert]] = []
    for target in fields(entity):
        source = known.get(target.name)
        inner, many = _nested(target.type)
        kafka_type = str(target.metadata.get("kafka_type", ""))
        if source is None:
            if target.default is MISSING:
                constants[target.name] = () if many else _ZERO.get(kafka_type, 0)
            continue
        nested = _nested(source.type)[0]
        if _is_entity(inner) and hasattr(nested, "__struct_fields__"):
            convert = _each(_to_entity(nested, inner), many)
        elif kafka_type == "error_code":
            convert = ErrorCode
        elif kafka_type.startswith("timedelta"):
            convert = _timedelta
        else:
            convert = _same
        plan.append((target.name, _getter(target.name, convert)))
    return lambda value: entity(**constants, **{name: get(value) for name, get in plan})
