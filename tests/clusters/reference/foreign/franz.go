package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct{ bootstrap string }

func newFranz(bootstrap string) client { return franz{bootstrap} }

func (f franz) with(options ...kgo.Opt) (*kgo.Client, context.Context, func(), error) {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(f.bootstrap, ",")...))...)
	if err != nil {
		return nil, nil, nil, err
	}
	within, cancel := context.WithTimeout(context.Background(), limit)
	return made, within, func() { cancel(); made.Close() }, nil
}

func (f franz) create(topic string, partitions int32, settings map[string]string) error {
	made, within, end, err := f.with()
	if err != nil {
		return err
	}
	defer end()
	given := map[string]*string{}
	for name, value := range settings {
		given[name] = &value
	}
	_, err = kadm.NewClient(made).CreateTopic(within, partitions, -1, given, topic)
	return err
}

func (f franz) topics() ([]string, error) {
	made, within, end, err := f.with()
	if err != nil {
		return nil, err
	}
	defer end()
	listed, err := kadm.NewClient(made).ListTopics(within)
	return listed.Names(), err
}

func (f franz) partitions(topic string) (int, error) {
	made, within, end, err := f.with()
	if err != nil {
		return 0, err
	}
	defer end()
	listed, err := kadm.NewClient(made).ListTopics(within, topic)
	return len(listed[topic].Partitions), err
}

func (f franz) settings(topic string) (map[string]string, error) {
	made, within, end, err := f.with()
	if err != nil {
		return nil, err
	}
	defer end()
	described, err := kadm.NewClient(made).DescribeTopicConfigs(within, topic)
	found := map[string]string{}
	for _, one := range described {
		for _, setting := range one.Configs {
			found[setting.Key] = setting.MaybeValue()
		}
	}
	return found, err
}

func (f franz) extend(topic string, partitions int32) error {
	made, within, end, err := f.with()
	if err != nil {
		return err
	}
	defer end()
	answered, err := kadm.NewClient(made).UpdatePartitions(within, int(partitions), topic)
	if err != nil {
		return err
	}
	return answered.Error()
}

func (f franz) remove(topic string) error {
	made, within, end, err := f.with()
	if err != nil {
		return err
	}
	defer end()
	_, err = kadm.NewClient(made).DeleteTopic(within, topic)
	return err
}

func (f franz) produce(topic, codec string, values []string) error {
	codecs := map[string]kgo.CompressionCodec{
		"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	made, within, end, err := f.with(
		kgo.ProducerBatchCompression(codecs[codec]), kgo.ProducerLinger(50*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer end()
	sent := []*kgo.Record{}
	for _, value := range values {
		sent = append(sent, &kgo.Record{Topic: topic, Value: []byte(value)})
	}
	return made.ProduceSync(within, sent...).FirstErr()
}

func from(topic string, partitions int32) kgo.Opt {
	places := map[int32]kgo.Offset{}
	for number := range partitions {
		places[number] = kgo.NewOffset().AtStart()
	}
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: places})
}

func (f franz) read(topic string, count int) ([]string, error) {
	made, within, end, err := f.with(from(topic, 1))
	if err != nil {
		return nil, err
	}
	defer end()
	found := []string{}
	for len(found) < count {
		polled := made.PollFetches(within)
		if err := polled.Err0(); err != nil {
			return nil, err
		}
		polled.EachRecord(func(one *kgo.Record) { found = append(found, string(one.Value)) })
	}
	return found, nil
}

func (f franz) offsetAt(topic string, ms int64) (int64, error) {
	made, within, end, err := f.with()
	if err != nil {
		return 0, err
	}
	defer end()
	listed, err := kadm.NewClient(made).ListOffsetsAfterMilli(within, ms, topic)
	if err != nil {
		return 0, err
	}
	one, _ := listed.Lookup(topic, 0)
	return one.Offset, one.Err
}

// sizes is a hook that keeps the most bytes of an answer to Fetch.
type sizes struct {
	lock sync.Mutex
	most int
}

func (s *sizes) OnBrokerRead(_ kgo.BrokerMetadata, key int16, bytes int, _, _ time.Duration, _ error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if key == 1 {
		s.most = max(s.most, bytes)
	}
}

func (f franz) largestFetch(topic string, maxBytes, partitions int32, count int) (int, error) {
	seen := &sizes{}
	made, within, end, err := f.with(
		from(topic, partitions), kgo.WithHooks(seen), kgo.FetchMaxBytes(maxBytes),
	)
	if err != nil {
		return 0, err
	}
	defer end()
	for found := 0; found < count; {
		polled := made.PollFetches(within)
		if err := polled.Err0(); err != nil {
			return 0, err
		}
		found += polled.NumRecords()
	}
	seen.lock.Lock()
	defer seen.lock.Unlock()
	return seen.most, nil
}

func (f franz) refusal(topic string) (string, error) {
	made, within, end, err := f.with(kgo.ConsumerGroup("group"), kgo.ConsumeTopics(topic))
	if err != nil {
		return "", err
	}
	defer end()
	for within.Err() == nil {
		for _, one := range made.PollFetches(within).Errors() {
			var refused *net.OpError
			if !errors.As(one.Err, &refused) {
				return one.Err.Error(), nil
			}
		}
	}
	return "", within.Err()
}
