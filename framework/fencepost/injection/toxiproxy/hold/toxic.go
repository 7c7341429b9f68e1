// Package hold is a toxic that chooses messages of a stream and holds, delays or drops them.
//
// A message is four bytes of length, big-endian, and as many bytes. Which messages are chosen is
// said by byte strings (see Attributes), so the toxic knows no protocol. It has to be there from the
// first byte of a connection, in the mode Pass: it could not tell where a message begins otherwise.
package hold

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// Name is the toxic's type in toxiproxy's API.
const Name = "hold"

// cleanupLimit is how long a connection may take what it still has to get when the toxic goes.
const cleanupLimit = 2 * time.Second

func init() { toxics.Register(Name, new(Toxic)) }

// Toxic is one toxic of one proxy. All connections of the proxy share it; what belongs to one
// connection is its Stream.
type Toxic struct {
	mu         sync.Mutex
	attributes *Attributes // nil: the defaults
	version    int
	counts     Counts
	orphans    [][][]byte // by the connections that have ended, in their order
	delivering sync.Mutex // held while orphans are delivered, so that they keep their order
}

// NewState is called for each connection.
func (t *Toxic) NewState() any { return new(Stream) }

// MarshalJSON shows the attributes and, as `counts`, what the toxic has done.
func (t *Toxic) MarshalJSON() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return json.Marshal(struct {
		Attributes
		Counts Counts `json:"counts"`
	}{t.set(), t.counts})
}

// UnmarshalJSON changes the attributes that the object names. toxiproxy calls it once for each API
// call, and only then interrupts the connections. So a release acts here on the orphans, which have
// no connection.
func (t *Toxic) UnmarshalJSON(object []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed, err := t.set().updated(object)
	if err != nil {
		return err
	}
	t.attributes = &changed
	t.version++
	if changed.Mode == Hold || changed.Mode == Delay || changed.Mode == Drop {
		held := Counts{Held: t.counts.Held, Orphans: t.counts.Orphans}
		held.Taken = held.Held + held.Orphans
		t.counts = held
	}
	t.settle()
	return nil
}

// set is what holds now; the caller has the lock.
func (t *Toxic) set() Attributes {
	if t.attributes == nil {
		return defaults()
	}
	return *t.attributes
}

func (t *Toxic) current() (Attributes, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.set(), t.version
}

// choose says whether a message that matches is one of those that Skip and First mean.
func (t *Toxic) choose() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Matched++
	a := t.set()
	return t.counts.Matched > a.Skip && (a.First == 0 || t.counts.Matched <= a.Skip+a.First)
}

func (t *Toxic) note(counts Counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.add(counts)
}

// Pipe carries one connection's bytes until it is interrupted, which every change of the toxic
// does, or the connection ends.
func (t *Toxic) Pipe(stub *toxics.ToxicStub) {
	s := stub.State.(*Stream)
	for {
		now := time.Now()
		a, version := t.current()
		s.Follow(a, version, now)
		chunk, wake := s.Next(now, a.Overtake)
		t.note(s.counted())
		var (
			input  <-chan *stream.StreamChunk
			output chan<- *stream.StreamChunk
			timer  <-chan time.Time
		)
		switch {
		case chunk != nil:
			output = stub.Output
		case s.ended:
			stub.Close()
			return
		case s.Queued() < a.MaxHeldBytes:
			input = stub.Input
		}
		if !wake.IsZero() {
			timer = time.After(wake.Sub(now))
		}
		select {
		case <-stub.Interrupt:
			return
		case output <- &stream.StreamChunk{Data: chunk, Timestamp: now}:
			s.Sent(chunk)
		case came := <-input:
			if came == nil {
				t.keep(s.End(a, now))
			} else {
				s.Take(came.Data, a, now, t.choose)
			}
		case <-timer:
		}
	}
}

// Cleanup is called for each connection when the toxic is removed: what it held leaves. A
// connection that does not take it in time is closed, since its messages would be damaged.
func (t *Toxic) Cleanup(stub *toxics.ToxicStub) {
	s := stub.State.(*Stream)
	whole := s.flushed()
	late := time.After(cleanupLimit)
	for chunk, _ := s.Next(time.Now(), true); whole && chunk != nil; chunk, _ = s.Next(time.Now(), true) {
		select {
		case stub.Output <- &stream.StreamChunk{Data: chunk, Timestamp: time.Now()}:
			s.Sent(chunk)
		case <-late:
			whole = false
		}
	}
	if !whole {
		stub.Close()
	}
}
