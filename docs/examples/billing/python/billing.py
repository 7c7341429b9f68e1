"""Bills orders: for each message of `orders`, one message in `bills`, with the order as its key."""

import json
import signal
import sys
import time
import uuid
from functools import partial

from confluent_kafka import Consumer, Message, Producer


def tell(op: str, error: object, bill: Message) -> None:
    """Prints what became of a bill. Fencepost's clauses about clients judge by it."""
    done = {"op": op, "topic": "bills", "partition": bill.partition(), "offset": bill.offset()}
    outcome = "unknown" if error else "ok"
    line = {"fencepost": "produced", **done, "outcome": outcome, "at": time.time()}
    print(json.dumps(line), flush=True)


def main(servers: str, how: str = "", settings: str = "") -> None:
    hasty = how != "careful"
    known = {"bootstrap.servers": servers}
    if settings:  # of a secured cluster: how to log in
        with open(settings) as file:
            known |= json.load(file)
    own = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(known | own | {"session.timeout.ms": 6000})
    producer = Producer(known | {"enable.idempotence": True, "linger.ms": 500})
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ending.append(number))
    consumer.subscribe(["orders"], on_assign=lambda *_: print("billing is ready", flush=True))
    while not ending:
        for message in consumer.consume(100, timeout=0.2):
            if message.error() is not None:
                print("cannot read:", message.error(), flush=True)
                continue
            if hasty:  # the bug: the order counts as done, and its bill is nowhere yet
                consumer.commit(message, asynchronous=False)
            order = (message.value() or b"").split()[0]
            bill = json.dumps({"order": order.decode()})
            op = str(uuid.uuid4())
            headers = {"fencepost-op": op}
            told = partial(tell, op)
            producer.produce("bills", bill, order, headers=headers, on_delivery=told)
            if not hasty:
                producer.flush()
                consumer.commit(message, asynchronous=False)
        producer.poll(0)
    producer.flush(10)
    consumer.close()


main(*sys.argv[1:])
