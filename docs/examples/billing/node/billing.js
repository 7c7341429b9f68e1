// Bills orders: for each message of `orders`, one message in `bills`, with the order as its key.
const { randomUUID } = require("node:crypto");
const { setTimeout: pause } = require("node:timers/promises");
const { Kafka, logLevel } = require("kafkajs");

const [servers, how] = process.argv.slice(2);
const hasty = how !== "careful";
const brokers = servers.split(",");
const kafka = new Kafka({ brokers, connectionTimeout: 10000, logLevel: logLevel.ERROR });
const consumer = kafka.consumer({ groupId: "billing", sessionTimeout: 6000 });
const producer = kafka.producer();
const unwritten = new Set(); // what is still to be written

async function main() {
  await producer.connect();
  consumer.on(consumer.events.GROUP_JOIN, () => console.log("billing is ready"));
  // KafkaJS stops for good when the group has dropped it, as after a pause.
  consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || consume());
  await consume();
  process.once("SIGTERM", async () => {
    await consumer.disconnect();
    await Promise.all(unwritten);
    await producer.disconnect();
  });
}

async function consume() {
  await consumer.connect();
  await consumer.subscribe({ topic: "orders", fromBeginning: true });
  await consumer.run({ autoCommit: false, eachBatch: bill });
}

async function bill({ batch }) {
  const { topic, partition } = batch;
  const offset = String(BigInt(batch.lastOffset()) + 1n);
  const commit = () => consumer.commitOffsets([{ topic, partition, offset }]);
  const orders = batch.messages.map((message) => message.value.toString().split(" ")[0]);
  if (hasty) {
    await commit(); // the bug: the orders count as done, and their bills are nowhere yet
    const later = pause(500)
      .then(() => write(orders, partition))
      .catch((error) => console.log("cannot write:", error.message))
      .finally(() => unwritten.delete(later));
    unwritten.add(later);
  } else {
    await write(orders, partition);
    await commit();
  }
}

// The bills of a partition's orders are in the partition of that number.
async function write(orders, partition) {
  const bills = orders.map((order) => ({
    key: order,
    value: JSON.stringify({ order }),
    partition,
    headers: { "fencepost-op": randomUUID() },
  }));
  try {
    const [stored] = await producer.send({ topic: "bills", messages: bills });
    bills.forEach((bill, at) => tell(bill, "ok", Number(stored.baseOffset) + at));
  } catch (error) {
    bills.forEach((bill) => tell(bill, "unknown", -1));
    throw error;
  }
}

// Prints what became of a bill. Fencepost's clauses about clients judge by it.
function tell({ partition, headers }, outcome, offset) {
  const bill = { op: headers["fencepost-op"], topic: "bills", partition, offset };
  const at = Date.now() / 1000;
  console.log(JSON.stringify({ fencepost: "produced", ...bill, outcome, at }));
}

main();
