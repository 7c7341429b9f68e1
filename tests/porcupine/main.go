// Judges logs by porcupine: are the answers that clients got of an append-only log linearizable?
//
// Operations come in as JSON lines, those of all logs mixed; one line a log goes out. The model is a
// list that only grows, and it knows nothing of Kafka:
//
//	append  puts `value` at the end, which must be `offset` (-1: wherever the end is)
//	read    finds `values` from `offset` on
//	whole   finds `values` from `offset` on, and nothing after them
//
// A `return` of -1 is an operation whose end was not seen: it happened at any time after its call.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	Log    string   `json:"log"`
	Kind   string   `json:"kind"`
	Value  string   `json:"value"`
	Offset int      `json:"offset"`
	Values []string `json:"values"`
	Client int      `json:"client"`
	Call   int64    `json:"call"`
	Return int64    `json:"return"`
}

type verdict struct {
	Log        string  `json:"log"`
	Result     string  `json:"result"`
	Operations int     `json:"operations"`
	TookMs     float64 `json:"took_ms"`
}

// log is a list that shares its beginning with the lists it grew from; nil is the empty one.
type log struct {
	before *log
	value  string
	length int
	hash   uint64
}

func (l *log) len() int {
	if l == nil {
		return 0
	}
	return l.length
}

func (l *log) with(value string) *log {
	h := fnv.New64a()
	if l != nil {
		fmt.Fprintf(h, "%d/", l.hash)
	}
	h.Write([]byte(value))
	return &log{l, value, l.len() + 1, h.Sum64()}
}

// holds says whether these values are there from an offset on.
func (l *log) holds(offset int, values []string) bool {
	for l.len() > offset+len(values) {
		l = l.before
	}
	if l.len() < offset+len(values) {
		return false
	}
	for at := len(values) - 1; at >= 0; at-- {
		if l.value != values[at] {
			return false
		}
		l = l.before
	}
	return true
}

func same(one, other *log) bool {
	if one.len() != other.len() {
		return false
	}
	for one != other {
		if one.value != other.value || one.hash != other.hash {
			return false
		}
		one, other = one.before, other.before
	}
	return true
}

var appendOnly = porcupine.Model{
	Init: func() interface{} { return (*log)(nil) },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		now, done := state.(*log), input.(operation)
		switch done.Kind {
		case "append":
			if done.Offset >= 0 && done.Offset != now.len() {
				return false, now
			}
			return true, now.with(done.Value)
		case "read":
			return now.holds(done.Offset, done.Values), now
		default:
			whole := now.len() == done.Offset+len(done.Values)
			return whole && now.holds(done.Offset, done.Values), now
		}
	},
	Equal: func(one, other interface{}) bool { return same(one.(*log), other.(*log)) },
	Hash: func(state interface{}) uint64 {
		if l := state.(*log); l != nil {
			return l.hash
		}
		return 0
	},
}

func judge(name string, history []porcupine.Operation, limit time.Duration) verdict {
	began := time.Now()
	result := porcupine.CheckOperationsTimeout(appendOnly, history, limit)
	took := float64(time.Since(began).Microseconds()) / 1000
	return verdict{name, string(result), len(history), took}
}

func read(lines *bufio.Scanner) (map[string][]porcupine.Operation, error) {
	logs := map[string][]porcupine.Operation{}
	for lines.Scan() {
		var one operation
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, err
		}
		switch one.Kind {
		case "append", "read", "whole":
		default:
			return nil, fmt.Errorf("no operation is called %q", one.Kind)
		}
		ended := one.Return
		if ended < 0 {
			ended = math.MaxInt64
		}
		logs[one.Log] = append(logs[one.Log], porcupine.Operation{
			ClientId: one.Client, Input: one, Call: one.Call, Return: ended,
		})
	}
	return logs, lines.Err()
}

func main() {
	limit := flag.Duration("limit", 10*time.Second, "how long to search in one log")
	flag.Parse()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<28)
	logs, err := read(lines)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	names := make([]string, 0, len(logs))
	for name := range logs {
		names = append(names, name)
	}
	sort.Strings(names)
	out := json.NewEncoder(os.Stdout)
	for _, name := range names {
		if err := out.Encode(judge(name, logs[name], *limit)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
}
