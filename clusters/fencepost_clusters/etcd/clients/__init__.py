"""Clients of etcd, each in a process of its own, by the JSON gateway (`/v3/*`).

What a client does is a script: a generator that yields steps and is sent answers. It does no I/O
and reads no clock. `http.py` is the thin shell that carries scripts out.

The gateway is used through the standard library. etcd3gw (2.7.0) is maintained, yet it reports a
refused connection and a connection that broke after the request was sent as the same error, so
"failed" and "unknown" could not be distinguished.
"""
