"""The probe by which it is measured that a link to a member answers."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException

_MOST_PADDING = 32_000


def etcd_probe(address: str, port: int, timeout_s: float, size: int = 0) -> bool:
    """Asks for the version, which a member answers on its client port and on its peer port.

    A header pads the request to `size` bytes.
    """
    connection = HTTPConnection(address, port, timeout=timeout_s)
    try:
        connection.request("GET", "/version", headers={"X-Padding": "-" * min(size, _MOST_PADDING)})
        return b"etcdserver" in connection.getresponse().read()
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
