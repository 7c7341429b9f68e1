package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

type ibm struct{ bootstrap []string }

func newSarama(bootstrap string) client { return ibm{strings.Split(bootstrap, ",")} }

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.V3_6_0_0
	made.Consumer.Return.Errors = true
	made.Producer.Return.Successes = true
	return made
}

func (o ibm) create(topic string, partitions int32, given map[string]string) error {
	admin, err := sarama.NewClusterAdmin(o.bootstrap, config())
	if err != nil {
		return err
	}
	defer admin.Close()
	entries := map[string]*string{}
	for name, value := range given {
		entries[name] = &value
	}
	detail := sarama.TopicDetail{
		NumPartitions: partitions, ReplicationFactor: -1, ConfigEntries: entries,
	}
	return admin.CreateTopic(topic, &detail, false)
}

func (o ibm) topics() ([]string, error) {
	admin, err := sarama.NewClusterAdmin(o.bootstrap, config())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	listed, err := admin.ListTopics()
	return slices.Collect(maps.Keys(listed)), err
}

func (o ibm) partitions(topic string) (int, error) {
	admin, err := sarama.NewClusterAdmin(o.bootstrap, config())
	if err != nil {
		return 0, err
	}
	defer admin.Close()
	described, err := admin.DescribeTopics([]string{topic})
	if err != nil {
		return 0, err
	}
	return len(described[0].Partitions), nil
}

func (o ibm) settings(topic string) (map[string]string, error) {
	admin, err := sarama.NewClusterAdmin(o.bootstrap, config())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic}
	described, err := admin.DescribeConfig(resource)
	found := map[string]string{}
	for _, setting := range described {
		found[setting.Name] = setting.Value
	}
	return found, err
}

func (o ibm) extend(topic string, partitions int32) error {
	admin, err := sarama.NewClusterAdmin(o.bootstrap, config())
	if err != nil {
		return err
	}
	defer admin.Close()
	return admin.CreatePartitions(topic, partitions, nil, false)
}

func (o ibm) remove(topic string) error {
	admin, err := sarama.NewClusterAdmin(o.bootstrap, config())
	if err != nil {
		return err
	}
	defer admin.Close()
	return admin.DeleteTopic(topic)
}

func (o ibm) produce(topic, codec string, values []string) error {
	given := config()
	if err := given.Producer.Compression.UnmarshalText([]byte(codec)); err != nil {
		return err
	}
	given.Producer.Flush.Frequency = 50 * time.Millisecond
	given.Producer.Partitioner = sarama.NewManualPartitioner
	producer, err := sarama.NewSyncProducer(o.bootstrap, given)
	if err != nil {
		return err
	}
	defer producer.Close()
	sent := []*sarama.ProducerMessage{}
	for _, value := range values {
		sent = append(sent, &sarama.ProducerMessage{
			Topic: topic, Value: sarama.StringEncoder(value),
		})
	}
	return producer.SendMessages(sent)
}

// each hands over the records of one partition, from its first one on.
func each(from sarama.Consumer, topic string, partition int32, count int, take func(string)) error {
	reader, err := from.ConsumePartition(topic, partition, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer reader.Close()
	late := time.After(limit)
	for range count {
		select {
		case one := <-reader.Messages():
			take(string(one.Value))
		case err := <-reader.Errors():
			return err
		case <-late:
			return fmt.Errorf("not %d records of %s within %s", count, topic, limit)
		}
	}
	return nil
}

func (o ibm) read(topic string, count int) ([]string, error) {
	consumer, err := sarama.NewConsumer(o.bootstrap, config())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	found := []string{}
	err = each(consumer, topic, 0, count, func(value string) { found = append(found, value) })
	return found, err
}

func (o ibm) offsetAt(topic string, ms int64) (int64, error) {
	made, err := sarama.NewClient(o.bootstrap, config())
	if err != nil {
		return 0, err
	}
	defer made.Close()
	return made.GetOffset(topic, 0, ms)
}

// largestFetch fails if an answer is larger: this client takes none that is.
func (o ibm) largestFetch(topic string, maxBytes, partitions int32, count int) (int, error) {
	former := sarama.MaxResponseSize
	sarama.MaxResponseSize = maxBytes
	defer func() { sarama.MaxResponseSize = former }()
	consumer, err := sarama.NewConsumer(o.bootstrap, config())
	if err != nil {
		return 0, err
	}
	defer consumer.Close()
	ended := make(chan error, partitions)
	for number := range partitions {
		go func() { ended <- each(consumer, topic, number, count/int(partitions), func(string) {}) }()
	}
	for range partitions {
		if err := <-ended; err != nil {
			return 0, err
		}
	}
	return int(maxBytes), nil
}

type nothing struct{}

func (nothing) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (nothing) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (nothing) ConsumeClaim(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error {
	return nil
}

func (o ibm) refusal(topic string) (string, error) {
	group, err := sarama.NewConsumerGroup(o.bootstrap, "group", config())
	if err != nil {
		return err.Error(), nil
	}
	defer group.Close()
	within, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := group.Consume(within, []string{topic}, nothing{}); err != nil {
		return err.Error(), nil
	}
	return "", fmt.Errorf("the group was joined")
}
