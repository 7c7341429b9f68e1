"""A client in an environment of its own writes numbered messages, and is judged by what is in the
topic at the end. `WRITER` has the words of its program, as JSON."""

import json
import os

import pytest

import fencepost
from fencepost import Condition, Ready, Shape

ARGV = json.loads(os.environ["WRITER"])


@pytest.fixture
def fencepost_shape():
    return Shape(apps={"writer": 1})


@fencepost.check("no number is missing among the messages")
def none_missing(run):
    last, numbers = {}, set()
    for one in run.clients.messages("orders"):
        last[one.partition] = number = int(one.key)
        numbers.add(number)
    # The program writes on while its partitions are read, one after the other.
    until = min(last.values())
    missing = set(range(until)) - numbers
    assert not missing, f"{len(missing)} of {until} messages are missing"


def answers(count):
    """The writer's messages have so many answers."""
    kind = "client.produce_completed"
    return Condition(f"the writer has {count} answers", lambda view: view.kinds[kind] >= count)


@pytest.fixture
def orders(cluster, clients, apps):
    clients.create_topic("orders", partitions=6)
    apps.start("writer", [*ARGV, "{bootstrap}"], ready=Ready(line="ready"))
    return "orders"


def test_reassignments(cluster, clients, orders):
    """IBM/sarama#3354: a batch that is tried again meets one that was begun meanwhile."""
    for turn in range(5):
        cluster.eventually(answers(400 * (turn + 1)))
        first = turn % 3
        replicas = [*cluster.brokers[first:], *cluster.brokers[:first]]
        clients.reassign(orders, 0, replicas)
        cluster.eventually(cluster.assigned(orders, 0, replicas))
        clients.elect_preferred(orders)
        cluster.eventually(replicas[0].leads(orders, 0))


def test_a_dead_leader_returns(cluster, faults, orders):
    """confluentinc/librdkafka#3584: the sequence numbers of a producer and of a leader differ."""
    for turn in range(3):
        cluster.eventually(answers(400 * (turn + 1)))
        victim = cluster.leader(orders, turn)
        with faults.kill(victim):
            cluster.eventually(victim.fenced_by_controller)
        cluster.await_recovery()


def test_a_leader_that_is_cut_off(cluster, faults, orders):
    """aio-libs/aiokafka#1018: a producer goes on to ask a broker that leads no longer."""
    for turn in range(2):
        cluster.eventually(answers(400 * (turn + 1)))
        victim = cluster.leader(orders, turn)
        with faults.isolate(victim):
            cluster.eventually(cluster.another_leader(orders, turn, victim))
            cluster.eventually(answers(400 * (turn + 1) + 200))
        cluster.await_recovery()
