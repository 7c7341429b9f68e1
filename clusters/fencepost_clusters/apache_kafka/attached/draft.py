"""The first draft of an attachment, of a stack of containers with nodes of Kafka in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fencepost import Composed, ComposedService

_IDS = ("KAFKA_NODE_ID", "KAFKA_CFG_NODE_ID", "KAFKA_BROKER_ID")
"""The variables by which the usual images are told a node's id."""
_ROLES = ("KAFKA_PROCESS_ROLES", "KAFKA_CFG_PROCESS_ROLES")
_API = 8474
_HEAD = """\
# A draft: read each line. `fencepost attach --dry-run` says what is wrong with it.
# may_break = true   # nothing is touched without this line
"""
_UNLINKED = """\
# No proxy of toxiproxy leads to {name}: its links cannot be cut.
"""
_UNREACHED = "# {name} publishes no port: put an address here that this machine reaches."


def drafted(stack: Composed) -> str:
    """See `fencepost.Attached.drafted`."""
    nodes = [(one, _node_id(one)) for one in stack.services]
    found = [(one, node_id) for one, node_id in nodes if node_id is not None]
    listens = {one.name: _listen(stack, one) for one, _ in found}
    lines = [_HEAD]
    first = [listens[one.name][1] or _address(one) for one, _ in found if "broker" in _roles(one)]
    lines.append(f"bootstrap = {json.dumps([one for one in first if one])}\n")
    toxiproxy = stack.toxiproxy
    if toxiproxy is not None:
        port = toxiproxy.published(_API) or _API
        lines += ["[toxiproxy]", f'url = "http://127.0.0.1:{port}"']
        lines.append(f"container = {json.dumps(toxiproxy.container)}\n")
    for one, node_id in found:
        lines += _node(one, node_id, *listens[one.name])
    return "\n".join(lines)


def _node(service: ComposedService, node_id: int, proxy: str, listen: str) -> Sequence[str]:
    address = _address(service)
    lines = [] if address else [_UNREACHED.format(name=service.name)]
    lines += ["[[node]]", f"name = {json.dumps(service.name)}", f"id = {node_id}"]
    lines.append(f"roles = {json.dumps(list(_roles(service)))}")
    lines += [f"address = {json.dumps(address or f'{service.name}:9092')}"]
    lines.append(f"container = {json.dumps(service.container)}\n")
    if proxy and listen:
        lines += ["[[link]]", 'from = "clients"', f"to = {json.dumps(service.name)}"]
        lines += [f"proxy = {json.dumps(proxy)}", f"listen = {json.dumps(listen)}\n"]
    elif "broker" in _roles(service):
        lines.append(_UNLINKED.format(name=service.name))
    return lines


def _listen(stack: Composed, service: ComposedService) -> tuple[str, str]:
    """The proxy that leads to a service, and where the host reaches it; empty if there is none."""
    toxiproxy = stack.toxiproxy
    for proxy in stack.proxies:
        if toxiproxy is not None and proxy.upstream in (service.name, service.container):
            port = toxiproxy.published(proxy.listen)
            return proxy.name, f"127.0.0.1:{port}" if port else ""
    return "", ""


def _address(service: ComposedService) -> str:
    """Where the host reaches the node itself; empty if it does not."""
    port = next((one.published for one in service.ports if one.published), 0)
    return f"127.0.0.1:{port}" if port else ""


def _node_id(service: ComposedService) -> int | None:
    given = _variable(service.environment, _IDS)
    return int(given) if given.isascii() and given.isdecimal() else None


def _roles(service: ComposedService) -> tuple[str, ...]:
    given = _variable(service.environment, _ROLES) or "broker"
    roles = sorted(one.strip() for one in given.split(","))
    return tuple(one for one in roles if one in ("broker", "controller")) or ("broker",)


def _variable(environment: Mapping[str, str], names: Sequence[str]) -> str:
    return next((environment[name] for name in names if name in environment), "")
