// Package cut is the toxic of a network that delivers nothing: no data, and no end of a connection.
//
// The stock toxic `timeout` drops data and passes the end of a connection on. So a node that was cut
// off learned within milliseconds that its peers had left it: a replica that followed another master
// closed its connection, and the isolated master counted one replica less.
//
// A stream in which bytes are missing must not go on, so lifting a cut ends each connection that met
// it. If the other direction is still cut, its end is told there all the same: it is this proxy that
// ended the connection, and not a peer that nobody hears.
package cut

import (
	"sync"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

func init() { toxics.Register("cut", new(Toxic)) }

// Toxic drops what comes.
type Toxic struct {
	// Link names the proxy. Toxics of both directions have the same.
	Link string `json:"link"`
}

// A state of one direction of a connection.
type state struct {
	// broken: a cut of the other direction was lifted, which ended this connection.
	broken bool
}

// NewState is what stays of a connection when the toxic is interrupted, and goes on.
func (*Toxic) NewState() any { return new(state) }

// Pipe drops data until it is interrupted: because the toxic is removed, or another one is added.
func (t *Toxic) Pipe(stub *toxics.ToxicStub) {
	now := stub.State.(*state)
	input, lifted := stub.Input, lifts.next(t.Link)
	for {
		select {
		case <-stub.Interrupt:
			return
		case <-lifted:
			now.broken, lifted = true, nil
		case chunk := <-input:
			if chunk == nil {
				// The sender has closed its connection. Nobody learns of it yet, and a closed channel
				// has no more to say.
				input = nil
			}
		}
		if input == nil && now.broken {
			stub.Close()
			return
		}
	}
}

// Cleanup ends a connection that met the cut once that is lifted.
func (t *Toxic) Cleanup(stub *toxics.ToxicStub) {
	lifts.lift(t.Link)
	stub.Close()
}

// The cuts that are lifted, by link.
type liftsByLink struct {
	sync.Mutex
	coming map[string]chan struct{}
}

var lifts = liftsByLink{coming: map[string]chan struct{}{}}

// next is closed when a cut of that link is lifted.
func (l *liftsByLink) next(link string) <-chan struct{} {
	l.Lock()
	defer l.Unlock()
	if l.coming[link] == nil {
		l.coming[link] = make(chan struct{})
	}
	return l.coming[link]
}

func (l *liftsByLink) lift(link string) {
	l.Lock()
	defer l.Unlock()
	if l.coming[link] != nil {
		close(l.coming[link])
		delete(l.coming, link)
	}
}
