"""Writes numbered messages into all partitions of `orders`, 200 a second, by a producer of aiokafka
without idempotence, and prints what became of each. Ends at SIGTERM, once each has its answer."""

import asyncio
import json
import signal
import sys
import time

from aiokafka import AIOKafkaProducer


def tell(what, number, **more):
    told = {"fencepost": what, "op": f"order-{number}", "topic": "orders", "at": time.time()}
    print(json.dumps(told | {"acks": "all", "partition": number % 6} | more), flush=True)


async def write(producer, number):
    try:
        value = f"order-{number} ".encode()
        place = {"key": str(number).encode(), "partition": number % 6}
        told = await producer.send_and_wait("orders", value, **place)
    except Exception as error:
        tell("produced", number, outcome="unknown", error=repr(error))
    else:
        tell("produced", number, outcome="ok", offset=told.offset)


async def main(servers):
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", metadata_max_age_ms=30_000)
    await producer.start()
    print("ready", flush=True)
    writing, number = set(), 0
    while not ending.is_set():
        tell("produce", number)
        task = asyncio.create_task(write(producer, number))
        writing.add(task)
        task.add_done_callback(writing.discard)
        number += 1
        await asyncio.sleep(0.005)
    await asyncio.gather(*writing)
    await producer.stop()


asyncio.run(main(sys.argv[1]))
