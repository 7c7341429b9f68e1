"""Writes numbered messages into all partitions of `orders`, 200 a second, by an idempotent producer
of confluent-kafka, and prints what became of each. Ends at SIGTERM, once each has its answer."""

import json
import signal
import sys
import time
from functools import partial

from confluent_kafka import Producer


def tell(what, number, **more):
    told = {"fencepost": what, "op": f"order-{number}", "topic": "orders", "at": time.time()}
    print(json.dumps(told | {"acks": "all", "idempotent": True} | more), flush=True)


def answered(number, error, message):
    if error is None:
        where = {"partition": message.partition(), "offset": message.offset()}
        tell("produced", number, outcome="ok", **where)
    else:
        more = {"partition": message.partition(), "outcome": "unknown"}
        tell("produced", number, error=str(error), **more)


def main(servers):
    ending = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    print("ready", flush=True)
    number = 0
    while not ending:
        told = partial(answered, number)
        text = f"order-{number} "
        tell("produce", number, partition=number % 6)
        producer.produce("orders", text, str(number), number % 6, on_delivery=told)
        producer.poll(0)
        time.sleep(0.005)
        number += 1
    sys.exit(1 if producer.flush(60) else 0)


main(sys.argv[1])
