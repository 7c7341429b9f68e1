"""A change that a test asks the cluster for: asked again while its outcome is unknown."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fencepost import MS, Condition, Runtime, Violation, because, let_pass_until
from fencepost_kafka.clients.commands import AdminCommand
from fencepost_kafka.events import AdminCompleted

ADMIN_LIMIT_MS = 15_000
ASK_AGAIN_MS = 500
_MADE_ALREADY = {
    "reassign": "NO_REASSIGNMENT_IN_PROGRESS",
    "delete_broker": "BROKER_ID_NOT_REGISTERED",
}
"""The errors with which a change is refused if an earlier try has made it: the reassignment or the
topic does not exist any more."""


def administer(
    command: AdminCommand,
    done: Condition | None,
    runtime: Runtime,
    ask: Callable[[AdminCommand], AdminCompleted],
    next_operation: Callable[[], str],
) -> AdminCompleted:
    """Carries out a command. A command whose outcome is unknown is repeated, unless an event
    shows that it is `done`.

    If the broker that librdkafka took for the controller fails, librdkafka gives up, while
    Kafka's own AdminClient asks the next broker. The limit counts from the first answer, which
    may take as long by itself.
    """
    completed = ask(command)
    until_ns = runtime.now_ns() + ADMIN_LIMIT_MS * MS
    in_doubt = completed.outcome == "unknown"
    while completed.outcome == "unknown" and runtime.now_ns() < until_ns:
        again_ns = runtime.now_ns() + ASK_AGAIN_MS * MS
        if done is None:
            let_pass_until(runtime, again_ns)
        elif runtime.advance(done, again_ns) is not None:
            return completed
        command = msgspec.structs.replace(command, operation=next_operation())
        completed = ask(command)
    # A try that is refused now may have succeeded before.
    refused = in_doubt and completed.outcome == "failed"
    if refused and _MADE_ALREADY.get(completed.api) == completed.error:
        return completed
    if refused and done is not None and runtime.advance(done, until_ns) is not None:
        return completed
    if completed.outcome != "ok":
        raise Violation(
            f"{completed.api} {completed.subject} ended as {completed.outcome}: {completed.error}"
            f"{because(completed.reason)}"
        )
    return completed
