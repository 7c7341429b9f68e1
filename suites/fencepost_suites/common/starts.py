"""The start of a process, by the harness that started it and by the node in it.

A node that keeps silent about its start, or names another role or id, must not be judged by nobody:
the harness knows which process it has started, as what, and under which id. Of a process with two
nodes it knows the first one's role, and of a node that it did not start nothing. So both words
count.
"""

from __future__ import annotations

from fencepost import Event, NodeStarted, ProcessSpawned


def process_begun(event: Event, body: ProcessSpawned | NodeStarted) -> str:
    """The process that began."""
    return body.started if isinstance(body, ProcessSpawned) else event.process
