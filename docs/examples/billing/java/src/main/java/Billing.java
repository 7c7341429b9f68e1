import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Bills orders: for each message of `orders`, one message in `bills`, with the order as its key. */
public final class Billing {
    private final KafkaConsumer<String, String> consumer;
    private final KafkaProducer<String, String> producer;
    private final boolean hasty;

    private Billing(String servers, boolean hasty) {
        this.hasty = hasty;
        var text = new StringDeserializer();
        consumer = new KafkaConsumer<>(Map.of(
            "bootstrap.servers", servers, "group.id", "billing", "auto.offset.reset", "earliest",
            "enable.auto.commit", "false", "session.timeout.ms", "6000"), text, text);
        producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", servers, "linger.ms", "500"),
            new StringSerializer(), new StringSerializer());
    }

    public static void main(String[] args) throws Exception {
        var billing = new Billing(args[0], args.length < 2 || !args[1].equals("careful"));
        var working = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {  // SIGTERM
            billing.consumer.wakeup();
            try {
                working.join();
            } catch (InterruptedException late) {
                Thread.currentThread().interrupt();
            }
        }));
        billing.work();
    }

    private void work() throws Exception {
        try (producer; consumer) {
            consumer.subscribe(List.of("orders"), new Assigned());
            while (true) {
                var orders = consumer.poll(Duration.ofMillis(200));
                if (hasty) {  // the bug: the orders count as done, and their bills are nowhere yet
                    commit();
                }
                var written = new ArrayList<Future<RecordMetadata>>();
                orders.forEach(order -> written.add(bill(order.value().split(" ")[0])));
                if (!hasty) {
                    producer.flush();
                    for (var bill : written) {
                        bill.get();
                    }
                    commit();
                }
            }
        } catch (WakeupException asked) {
            System.out.println("billing ends");
        }
    }

    private Future<RecordMetadata> bill(String order) {
        var bill = new ProducerRecord<>("bills", order, "{\"order\": \"" + order + "\"}");
        var op = UUID.randomUUID().toString();
        bill.headers().add("fencepost-op", op.getBytes());
        return producer.send(bill, (stored, error) -> tell(op, stored, error));
    }

    private void commit() {
        try {
            consumer.commitSync();
        } catch (CommitFailedException | RebalanceInProgressException error) {
            System.out.println("cannot commit: " + error.getMessage());
        }
    }

    /** Prints what became of a bill. Fencepost's clauses about clients judge by it. */
    private static void tell(String op, RecordMetadata stored, Exception error) {
        System.out.println(String.format(Locale.ROOT,
            "{\"fencepost\": \"produced\", \"op\": \"%s\", \"topic\": \"%s\", \"partition\": %d, "
            + "\"offset\": %d, \"outcome\": \"%s\", \"idempotent\": true, \"at\": %.3f}",
            op, stored.topic(), stored.partition(), stored.offset(),
            error == null ? "ok" : "unknown", System.currentTimeMillis() / 1000.0));
    }

    private static final class Assigned implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            System.out.println("billing is ready");
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}
    }
}
