package hold

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

const patience = 5 * time.Second

// upstream is a server that notes messages and answers each by itself.
type upstream struct {
	listener net.Listener
	heard    chan string
	mute     bool
}

func serve(t *testing.T, address string) *upstream {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{listener: listener, heard: make(chan string, 100)}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go u.answer(connection)
		}
	}()
	return u
}

func (u *upstream) answer(connection net.Conn) {
	defer connection.Close()
	for {
		one, err := read(connection)
		if err != nil {
			return
		}
		u.heard <- string(one[12:])
		if _, err := connection.Write(one); err != nil {
			return
		}
	}
}

func (u *upstream) address() string { return u.listener.Addr().String() }

func (u *upstream) hears(t *testing.T, want ...string) {
	t.Helper()
	for _, one := range want {
		select {
		case got := <-u.heard:
			if got != one {
				t.Fatalf("%q came, not %q", got, one)
			}
		case <-time.After(patience):
			t.Fatalf("%q did not come", one)
		}
	}
}

func (u *upstream) hearsNothing(t *testing.T) {
	t.Helper()
	select {
	case got := <-u.heard:
		t.Fatalf("%q came", got)
	case <-time.After(50 * time.Millisecond):
	}
}

func read(connection net.Conn) ([]byte, error) {
	length := make([]byte, 4)
	if _, err := io.ReadFull(connection, length); err != nil {
		return nil, err
	}
	rest := make([]byte, binary.BigEndian.Uint32(length))
	_, err := io.ReadFull(connection, rest)
	return append(length, rest...), err
}

// bench is a proxy with the toxic, as the API would make it.
type bench struct {
	*testing.T
	proxy *toxiproxy.Proxy
}

func open(t *testing.T, upstream string) bench {
	t.Helper()
	metrics := toxiproxy.NewMetricsContainer(prometheus.NewRegistry())
	server := toxiproxy.NewServer(metrics, zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, "proxy", "127.0.0.1:0", upstream)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	b := bench{t, proxy}
	toxic := fmt.Sprintf(
		`{"name": "h", "type": "hold", "stream": "upstream", "attributes": {"upstream": %q}}`, upstream)
	if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b bench) set(attributes string) {
	b.Helper()
	body := `{"attributes": {` + attributes + `}}`
	if _, err := b.proxy.Toxics.UpdateToxicJson("h", strings.NewReader(body)); err != nil {
		b.Fatal(err)
	}
}

func (b bench) counts() Counts {
	b.Helper()
	shown, err := json.Marshal(b.proxy.Toxics.GetToxic("h"))
	if err != nil {
		b.Fatal(err)
	}
	var toxic struct{ Attributes struct{ Counts Counts } }
	if err := json.Unmarshal(shown, &toxic); err != nil {
		b.Fatal(err)
	}
	return toxic.Attributes.Counts
}

// until waits until the counts are so.
func (b bench) until(holds func(Counts) bool) {
	b.Helper()
	deadline := time.Now().Add(patience)
	for !holds(b.counts()) {
		if time.Now().After(deadline) {
			b.Fatalf("they stay %+v", b.counts())
		}
		time.Sleep(time.Millisecond)
	}
}

func (b bench) dial() net.Conn {
	b.Helper()
	connection, err := net.Dial("tcp", b.proxy.Listen)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { connection.Close() })
	return connection
}

func (b bench) send(connection net.Conn, key uint16, body string) {
	b.Helper()
	if _, err := connection.Write(message(key, body)); err != nil {
		b.Fatal(err)
	}
}

func TestAHeldMessageWaitsUntilItIsReleased(t *testing.T) {
	u := serve(t, "127.0.0.1:0")
	b := open(t, u.address())
	connection := b.dial()
	b.send(connection, 5, "before")
	u.hears(t, "before")
	b.set(`"mode": "hold", "prefixes": ["0005"]`)
	b.send(connection, 1, "other")
	b.send(connection, 5, "held")
	b.send(connection, 1, "behind")
	u.hears(t, "other")
	b.until(func(c Counts) bool { return c.Held == 1 && c.Matched == 1 })
	u.hearsNothing(t)
	b.set(`"mode": "pass"`)
	u.hears(t, "held", "behind")
	b.until(func(c Counts) bool { return c.Released == 1 && c.Held == 0 })
}

func TestTheFirstOnesAfterThoseSkippedAreChosenOverAllConnections(t *testing.T) {
	u := serve(t, "127.0.0.1:0")
	b := open(t, u.address())
	b.set(`"mode": "drop", "prefixes": ["0005"], "skip": 1, "first": 2`)
	for _, body := range []string{"a", "b", "c", "d"} {
		b.send(b.dial(), 5, body)
		b.until(func(c Counts) bool { return c.Matched == int(body[0]-'a')+1 })
	}
	u.hears(t, "a", "d")
	if c := b.counts(); c.Dropped != 2 || c.Taken != 2 {
		t.Fatalf("%+v", c)
	}
	b.set(`"mode": "drop", "first": 1, "skip": 0`)
	b.send(b.dial(), 5, "e")
	b.until(func(c Counts) bool { return c.Matched == 1 && c.Dropped == 1 })
}

func TestADelayedMessageComesLate(t *testing.T) {
	u := serve(t, "127.0.0.1:0")
	b := open(t, u.address())
	b.set(`"mode": "delay", "delay_ms": 60`)
	began := time.Now()
	b.send(b.dial(), 5, "late")
	u.hears(t, "late")
	if took := time.Since(began); took < 60*time.Millisecond {
		t.Fatalf("it took %v", took)
	}
}

func TestAMessageOutlivesItsConnectionAndReachesARestartedUpstream(t *testing.T) {
	u := serve(t, "127.0.0.1:0")
	b := open(t, u.address())
	b.set(`"mode": "hold", "prefixes": ["0005"]`)
	connection := b.dial()
	b.send(connection, 5, "one")
	b.send(connection, 5, "two")
	b.until(func(c Counts) bool { return c.Held == 2 })
	connection.Close()
	b.until(func(c Counts) bool { return c.Orphans == 2 && c.Held == 0 })
	address := u.address()
	u.listener.Close()
	restarted := serve(t, address)
	b.set(`"mode": "pass"`)
	restarted.hears(t, "one", "two")
	b.until(func(c Counts) bool { return c.Redelivered == 2 && c.Answered == 2 && c.Orphans == 0 })
}

func TestAMessageThatCannotBeRedeliveredIsLostAndCounted(t *testing.T) {
	u := serve(t, "127.0.0.1:0")
	b := open(t, u.address())
	b.set(`"mode": "hold"`)
	connection := b.dial()
	b.send(connection, 5, "one")
	b.until(func(c Counts) bool { return c.Held == 1 })
	u.listener.Close()
	connection.Close()
	b.until(func(c Counts) bool { return c.Orphans == 1 })
	b.set(`"mode": "pass"`)
	b.until(func(c Counts) bool { return c.Lost == 1 && c.Orphans == 0 && c.LastError != "" })
}

func TestDisablingAProxyKeepsWhatItHeld(t *testing.T) {
	u := serve(t, "127.0.0.1:0")
	b := open(t, u.address())
	b.set(`"mode": "hold"`)
	b.send(b.dial(), 5, "one")
	b.until(func(c Counts) bool { return c.Held == 1 })
	b.proxy.Stop()
	b.until(func(c Counts) bool { return c.Orphans == 1 })
	if err := b.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	b.set(`"mode": "pass"`)
	u.hears(t, "one")
}

func TestOrphansCanBeDropped(t *testing.T) {
	b := open(t, serve(t, "127.0.0.1:0").address())
	b.set(`"mode": "hold"`)
	connection := b.dial()
	b.send(connection, 5, "one")
	b.until(func(c Counts) bool { return c.Held == 1 })
	connection.Close()
	b.until(func(c Counts) bool { return c.Orphans == 1 })
	b.set(`"mode": "drop"`)
	b.until(func(c Counts) bool { return c.Orphans == 0 && c.Dropped == 1 })
}

func TestRemovingTheToxicReleasesWhatItHeld(t *testing.T) {
	u := serve(t, "127.0.0.1:0")
	b := open(t, u.address())
	b.set(`"mode": "hold", "prefixes": ["0005"]`)
	connection := b.dial()
	b.send(connection, 5, "held")
	b.send(connection, 1, "behind")
	b.until(func(c Counts) bool { return c.Seen == 2 })
	if err := b.proxy.Toxics.RemoveToxic(context.Background(), "h"); err != nil {
		t.Fatal(err)
	}
	b.send(connection, 1, "after")
	u.hears(t, "held", "behind", "after")
}

func TestMemoryIsBoundedAndNothingIsLost(t *testing.T) {
	u := serve(t, "127.0.0.1:0")
	b := open(t, u.address())
	b.set(`"mode": "hold", "first": 1, "max_held_bytes": 100000`)
	connection := b.dial()
	body := strings.Repeat("x", 8<<20)
	go func() { connection.Write(message(5, body)) }()
	b.until(func(c Counts) bool { return c.Held == 1 })
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	if memory.HeapAlloc > 40<<20 {
		t.Fatalf("%d bytes are in use", memory.HeapAlloc)
	}
	b.set(`"mode": "pass"`)
	u.hears(t, body)
}

func TestAnUpstreamThatReadsNothingHoldsUpNoChange(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	b := open(t, listener.Addr().String())
	connection := b.dial()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	go func() {
		for connection != nil {
			if _, err := connection.Write(message(1, strings.Repeat("x", 100_000))); err != nil {
				return
			}
		}
	}()
	var before int
	b.until(func(c Counts) bool { // it flows no more
		same := c.Seen > 10 && c.Seen == before
		before = c.Seen
		return same
	})
	began := time.Now()
	b.set(`"mode": "hold"`)
	b.set(`"mode": "pass"`)
	if took := time.Since(began); took > time.Second {
		t.Fatalf("it took %v", took)
	}
}

func TestAttributesWithoutSenseAreRefusedAndChangeNothing(t *testing.T) {
	b := open(t, serve(t, "127.0.0.1:0").address())
	for _, attributes := range []string{
		`"mode": "keep"`, `"skip": -1`, `"mode": "delay"`, `"on_close": "wait"`, `"prefixes": ["5"]`,
		`"api_keys": [5]`, `"max_held_bytes": 0`, `"mode": "hold", "upstream": ""`,
	} {
		body := `{"attributes": {` + attributes + `}}`
		_, err := b.proxy.Toxics.UpdateToxicJson("h", strings.NewReader(body))
		refused, is := err.(*toxiproxy.ApiError)
		if !is || refused.StatusCode != 400 {
			t.Errorf("%s: %v", attributes, err)
		}
	}
	shown, _ := json.Marshal(b.proxy.Toxics.GetToxic("h"))
	if !strings.Contains(string(shown), `"mode":"pass"`) {
		t.Errorf("%s", shown)
	}
}

func TestAMessageWithoutAnAnswerIsFollowedByTheNext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	b := open(t, listener.Addr().String())
	b.set(`"mode": "hold"`)
	connection := b.dial()
	b.send(connection, 5, "one")
	b.send(connection, 5, "two")
	b.until(func(c Counts) bool { return c.Held == 2 })
	connection.Close()
	b.until(func(c Counts) bool { return c.Orphans == 2 })
	b.set(`"mode": "pass"`)
	b.until(func(c Counts) bool { return c.Redelivered == 2 && c.Orphans == 0 && c.Answered == 0 })
}
