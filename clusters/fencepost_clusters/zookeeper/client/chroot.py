"""The paths of a client whose requests are all below one path, its chroot."""

from __future__ import annotations

from dataclasses import replace

from fencepost_clusters.zookeeper.client.port import (
    Answer,
    Created,
    Done,
    Multi,
    Request,
    WriteResult,
)


def below(chroot: str, request: Request) -> Request:
    """The request as the server gets it."""
    if isinstance(request, Multi):
        writes = (replace(one, path=_path_below(chroot, one.path)) for one in request.writes)
        return Multi(tuple(writes))
    return replace(request, path=_path_below(chroot, request.path))


def within(chroot: str, path: str) -> str:
    """A server's path as the client knows it."""
    return path.removeprefix(chroot) or "/"


def answer_within(chroot: str, answer: Answer) -> Answer:
    """A server's answer as the client gets it."""
    match answer:
        case Created():
            return _created(chroot, answer)
        case Done(results):
            return Done(tuple(_result(chroot, one) for one in results))
        case _:
            return answer


def _path_below(chroot: str, path: str) -> str:
    return (chroot or "/") if path == "/" else chroot + path


def _created(chroot: str, created: Created) -> Created:
    return replace(created, path=within(chroot, created.path))


def _result(chroot: str, result: WriteResult) -> WriteResult:
    return _created(chroot, result) if isinstance(result, Created) else result
