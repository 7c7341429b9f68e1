package cut

import (
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

const soon = 50 * time.Millisecond

// A direction of a connection whose toxic runs: what is sent into `in` leaves by `out`, if at all.
type direction struct {
	in, out chan *stream.StreamChunk
	stub    *toxics.ToxicStub
	toxic   *Toxic
}

func cutOf(link string) *direction {
	in, out := make(chan *stream.StreamChunk), make(chan *stream.StreamChunk)
	one := &direction{in, out, toxics.NewToxicStub(in, out), &Toxic{Link: link}}
	one.stub.State = one.toxic.NewState()
	go one.run()
	one.in <- &stream.StreamChunk{Data: []byte("x")} // it runs once this is taken
	return one
}

func (d *direction) run() { d.stub.Run(&toxics.ToxicWrapper{Toxic: d.toxic, Toxicity: 1}) }

func (d *direction) silent(t *testing.T) {
	t.Helper()
	select {
	case chunk := <-d.out:
		t.Fatalf("%v came through", chunk)
	case <-time.After(soon):
	}
}

func (d *direction) ends(t *testing.T) {
	t.Helper()
	select {
	case chunk, open := <-d.out:
		if open {
			t.Fatalf("%v came through", chunk)
		}
	case <-time.After(time.Minute):
		t.Fatal("it did not end")
	}
}

func (d *direction) lift(t *testing.T) {
	t.Helper()
	if !d.stub.InterruptToxic() {
		t.Fatal("it was closed already")
	}
	d.toxic.Cleanup(d.stub)
}

func TestNeitherDataNorTheEndOfAConnectionComesThrough(t *testing.T) {
	one := cutOf(t.Name())
	close(one.in)
	one.silent(t)
	if one.stub.Closed() {
		t.Fatal("the peer was told that the connection had ended")
	}
}

func TestAConnectionThatMetTheCutEndsOnceItIsLifted(t *testing.T) {
	for _, ended := range []bool{false, true} {
		one := cutOf(t.Name())
		if ended {
			close(one.in)
		}
		one.lift(t)
		one.ends(t)
	}
}

func TestAConnectionWhoseOtherDirectionWasLiftedEndsToo(t *testing.T) {
	for _, before := range []bool{false, true} {
		up, down, other := cutOf(t.Name()), cutOf(t.Name()), cutOf(t.Name()+" of another link")
		close(other.in)
		if before {
			close(down.in)
		}
		up.lift(t)
		if !before {
			down.silent(t) // bytes of this connection that are under way are still dropped
			close(down.in)
		}
		down.ends(t)
		other.silent(t)
	}
}

func TestWhatIsBrokenStaysSoWhenAnotherToxicIsAdded(t *testing.T) {
	up, down := cutOf(t.Name()), cutOf(t.Name())
	up.lift(t)
	down.silent(t)
	if !down.stub.InterruptToxic() {
		t.Fatal("it was closed already")
	}
	go down.run()
	close(down.in)
	down.ends(t)
}
