"""Clients of etcd, each in a process of its own, by the JSON gateway (`/v3/*`).

A client's work is a script: a generator that yields steps and is sent answers. A script does no I/O
and reads no clock. `http.py` is the thin shell that carries scripts out.

The gateway is used through the standard library. etcd3gw (2.7.0) is maintained, but it reports the
same error for a refused connection and for one that broke after the request was sent, so "failed"
and "unknown" could not be distinguished.
"""
