// Writes numbered messages into partition 0 of `orders`, 500 a second, by an idempotent producer of sarama,
// and prints what became of each. Ends at SIGTERM, once all of them have their answer.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

func main() {
	settings := sarama.NewConfig()
	settings.Version = sarama.V2_8_0_0
	settings.Net.MaxOpenRequests = 1
	settings.Producer.Idempotent = true
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Return.Successes = true
	settings.Producer.Retry.Max = 100
	settings.Producer.Partitioner = sarama.NewManualPartitioner
	producer, err := sarama.NewAsyncProducer(strings.Split(os.Args[1], ","), settings)
	if err != nil {
		log.Fatal(err)
	}
	ending := make(chan os.Signal, 1)
	signal.Notify(ending, syscall.SIGTERM)
	go func() {
		fmt.Println("ready")
		ticks := time.NewTicker(2 * time.Millisecond)
		for number := 0; ; number++ {
			select {
			case <-ending:
				producer.AsyncClose()
				return
			case <-ticks.C:
			}
			name := strconv.Itoa(number)
			tell("produce", name, nil, "")
			producer.Input() <- &sarama.ProducerMessage{
				Topic: "orders", Partition: 0, Key: sarama.StringEncoder(name),
				Value: sarama.StringEncoder("order-" + name + " "), Metadata: name,
			}
		}
	}()
	successes, errors := producer.Successes(), producer.Errors()
	for successes != nil || errors != nil {
		select {
		case one, open := <-successes:
			if !open {
				successes = nil
				continue
			}
			tell("produced", one.Metadata.(string), &one.Offset, "")
		case one, open := <-errors:
			if !open {
				errors = nil
				continue
			}
			tell("produced", one.Msg.Metadata.(string), nil, one.Err.Error())
		}
	}
}

func tell(what, number string, offset *int64, trouble string) {
	told := map[string]any{
		"fencepost": what, "op": "order-" + number, "topic": "orders", "partition": 0, "acks": "all",
		"idempotent": true, "at": float64(time.Now().UnixMicro()) / 1e6,
	}
	if what == "produced" {
		told["outcome"] = "unknown"
		if offset != nil {
			told["outcome"], told["offset"] = "ok", *offset
		}
		if trouble != "" {
			told["error"] = trouble
		}
	}
	line, _ := json.Marshal(told)
	fmt.Println(string(line))
}
