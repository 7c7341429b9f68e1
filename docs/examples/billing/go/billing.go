// Bills orders: for each message of `orders`, one message in `bills`, with the order as its key.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	hasty := len(os.Args) < 3 || os.Args[2] != "careful"
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.ConsumerGroup("billing"),
		kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(6*time.Second),
		kgo.ProducerLinger(500*time.Millisecond),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
			fmt.Println("billing is ready")
		}),
	)
	if err != nil {
		log.Fatal(err)
	}
	ending, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for {
		fetches := client.PollFetches(ending)
		if ending.Err() != nil {
			break
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			log.Println("cannot read:", err)
		})
		bill(client, fetches.Records(), hasty)
	}
	within, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	client.Flush(within)
	client.Close()
}

func bill(client *kgo.Client, orders []*kgo.Record, hasty bool) {
	always := context.Background()
	if hasty { // the bug: the orders count as done, and their bills are nowhere yet
		commit(client, orders)
	}
	var bills []*kgo.Record
	for _, message := range orders {
		order, _, _ := strings.Cut(string(message.Value), " ")
		text, _ := json.Marshal(map[string]string{"order": order})
		op := kgo.RecordHeader{Key: "fencepost-op", Value: []byte(rand.Text())}
		bills = append(bills, &kgo.Record{
			Topic: "bills", Key: []byte(order), Value: text, Headers: []kgo.RecordHeader{op},
		})
	}
	if hasty {
		for _, bill := range bills {
			client.Produce(always, bill, tell)
		}
		return
	}
	written := client.ProduceSync(always, bills...)
	for _, one := range written {
		tell(one.Record, one.Err)
	}
	if err := written.FirstErr(); err != nil {
		log.Fatal("cannot write: ", err) // the next process bills these orders
	}
	commit(client, orders)
}

func commit(client *kgo.Client, orders []*kgo.Record) {
	if err := client.CommitRecords(context.Background(), orders...); err != nil {
		log.Println("cannot commit:", err)
	}
}

// tell prints what became of a bill. Fencepost's clauses about clients judge by it.
func tell(bill *kgo.Record, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "unknown"
	}
	line, _ := json.Marshal(map[string]any{
		"fencepost": "produced", "op": string(bill.Headers[0].Value), "topic": bill.Topic,
		"partition": bill.Partition, "offset": bill.Offset, "outcome": outcome,
		"idempotent": true, "at": float64(time.Now().UnixMilli()) / 1000,
	})
	fmt.Println(string(line))
}
