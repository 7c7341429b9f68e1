// Carries out a test's commands with a Kafka client of Go's world: one JSON line each, in and out.
//
//	foreign franz-go|sarama BOOTSTRAP
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// limit is how long a command may take.
const limit = 20 * time.Second

type command struct {
	Do         string
	Topic      string
	Partitions int32
	Settings   map[string]string
	Values     []string
	Codec      string
	Count      int
	TimeMs     int64 `json:"time_ms"`
	MaxBytes   int32 `json:"max_bytes"`
}

// A client is what each library can do.
type client interface {
	create(topic string, partitions int32, settings map[string]string) error
	topics() ([]string, error)
	// partitions is the number of a topic's partitions.
	partitions(topic string) (int, error)
	// settings are the described settings of a topic.
	settings(topic string) (map[string]string, error)
	extend(topic string, partitions int32) error
	remove(topic string) error
	produce(topic, codec string, values []string) error
	// read returns the first values of partition 0.
	read(topic string, count int) ([]string, error)
	// offsetAt is the offset of the first record of a time in partition 0.
	offsetAt(topic string, ms int64) (int64, error)
	// largestFetch reads count records of all partitions with a limit of bytes; it returns the
	// most bytes of one answer.
	largestFetch(topic string, maxBytes int32, partitions int32, count int) (int, error)
	// refusal is the error upon joining a group.
	refusal(topic string) (string, error)
}

func carryOut(with client, asked command) (any, error) {
	switch asked.Do {
	case "create":
		return nil, with.create(asked.Topic, asked.Partitions, asked.Settings)
	case "topics":
		return with.topics()
	case "partitions":
		return with.partitions(asked.Topic)
	case "settings":
		return with.settings(asked.Topic)
	case "extend":
		return nil, with.extend(asked.Topic, asked.Partitions)
	case "delete":
		return nil, with.remove(asked.Topic)
	case "produce":
		return nil, with.produce(asked.Topic, asked.Codec, asked.Values)
	case "read":
		return with.read(asked.Topic, asked.Count)
	case "offset_at":
		return with.offsetAt(asked.Topic, asked.TimeMs)
	case "largest_fetch":
		return with.largestFetch(asked.Topic, asked.MaxBytes, asked.Partitions, asked.Count)
	case "refusal":
		return with.refusal(asked.Topic)
	}
	return nil, fmt.Errorf("no command %q", asked.Do)
}

func main() {
	makers := map[string]func(string) client{"franz-go": newFranz, "sarama": newSarama}
	with := makers[os.Args[1]](os.Args[2])
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked command
		answer := map[string]any{}
		err := json.Unmarshal(lines.Bytes(), &asked)
		if err == nil {
			answer["answer"], err = carryOut(with, asked)
		}
		if err != nil {
			answer["error"] = err.Error()
		}
		if err := answers.Encode(answer); err != nil {
			panic(err)
		}
	}
}
