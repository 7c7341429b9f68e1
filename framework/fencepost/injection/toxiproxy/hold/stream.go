package hold

import (
	"encoding/binary"
	"slices"
	"time"
)

const (
	lengthBytes = 4
	// maxChunkBytes is what a reader of a link's output takes at once. A larger chunk than 64 KiB
	// loses bytes there: stream.ChanReader overwrites its rest when the next chunk is ready.
	maxChunkBytes = 32 << 10
	// inspectedBytes of a message are searched for what it contains.
	inspectedBytes = 64 << 10
	// maxMessageBytes and minMessageBytes bound what can be the length of a message.
	maxMessageBytes = 256 << 20
	minMessageBytes = 8
)

// run is a part of a stream whose bytes leave together: messages that pass, or one that was chosen.
type run struct {
	parts  [][]byte
	size   int
	chosen bool
	held   bool
	due    time.Time
	// whole: the run ends at the end of a message, and no byte is missing.
	whole bool
}

func (r *run) free(now time.Time) bool { return !r.held && !now.Before(r.due) }

func (r *run) add(data []byte) {
	r.parts = append(r.parts, data)
	r.size += len(data)
}

// Stream is one connection's bytes on their way: pure, without channels or clocks. A message is
// four bytes of length, big-endian, and as many bytes.
type Stream struct {
	runs []*run
	// next is the run of which Next returned a part; sending one of which a part has left:
	// its message must end before another begins.
	next    *run
	sending *run
	// undecided is the beginning of a message of which too little has come to decide about it.
	undecided []byte
	// rest is how much of the newest message is to come; it goes into `into`, or nowhere (`sink`),
	// or passes.
	rest    int
	into    *run
	sink    bool
	raw     bool
	ended   bool
	version int
	tally   Counts
}

// verdict is what becomes of a message; more is how many bytes it takes to know, if above 0.
type verdict struct {
	length int
	take   bool
	raw    bool
	more   int
}

// judge decides about the message that begins with these bytes. `choose` is asked about one that
// matches, once.
func judge(window []byte, a Attributes, choose func() bool) verdict {
	if len(window) < lengthBytes {
		return verdict{more: lengthBytes}
	}
	length := int(binary.BigEndian.Uint32(window))
	if length < minMessageBytes || length > maxMessageBytes {
		return verdict{raw: true}
	}
	if a.Mode == Pass {
		return verdict{length: length}
	}
	message := window[lengthBytes:min(len(window), lengthBytes+length)]
	if need := min(length, a.longestPrefix()); len(message) < need {
		return verdict{more: lengthBytes + need}
	}
	if !a.begins(message) {
		return verdict{length: length}
	}
	if len(a.Containing) > 0 {
		need := min(length, inspectedBytes)
		if len(message) < need {
			return verdict{more: lengthBytes + need}
		}
		if !a.contains(message[:need]) {
			return verdict{length: length}
		}
	}
	return verdict{length: length, take: choose()}
}

// Take adds bytes that have come.
func (s *Stream) Take(data []byte, a Attributes, now time.Time, choose func() bool) {
	from, at := 0, 0 // data[from:at] passes
	flush := func() {
		s.pass(data[from:at])
		from = at
	}
	for at < len(data) {
		switch {
		case s.raw:
			at = len(data)
		case s.rest > 0:
			n := min(s.rest, len(data)-at)
			s.rest -= n
			if s.into == nil && !s.sink {
				at += n
				continue
			}
			flush()
			s.gather(data[at : at+n])
			at += n
			from = at
		case len(s.undecided) == 0:
			v := judge(data[at:], a, choose)
			if v.more > 0 || v.take {
				flush()
			}
			if v.more > 0 {
				s.undecided = slices.Clone(data[at:])
				return
			}
			s.begin(v, a, now)
		default:
			v := judge(s.undecided, a, choose)
			for ; v.more > 0; v = judge(s.undecided, a, choose) {
				n := min(v.more-len(s.undecided), len(data)-at)
				s.undecided = append(s.undecided, data[at:at+n]...)
				at += n
				from = at
				if len(s.undecided) < v.more {
					return
				}
			}
			s.resume(v, a, now)
		}
	}
	flush()
}

// begin is called where a message begins whose bytes are all still to be added.
func (s *Stream) begin(v verdict, a Attributes, now time.Time) {
	s.into, s.sink, s.rest = nil, false, lengthBytes+v.length
	if v.raw {
		s.raw = true
		s.tally.Unframed++
		return
	}
	s.tally.Seen++
	if !v.take {
		return
	}
	s.tally.Taken++
	if a.Mode == Drop {
		s.sink = true
		s.tally.Dropped++
		return
	}
	s.into = &run{chosen: true, held: a.Mode == Hold}
	if a.Mode == Delay {
		s.into.due = now.Add(time.Duration(a.DelayMS) * time.Millisecond)
	}
	s.runs = append(s.runs, s.into)
	s.tally.Held++
}

// resume is `begin` for a message whose first bytes have waited.
func (s *Stream) resume(v verdict, a Attributes, now time.Time) {
	waited := s.undecided
	s.undecided = nil
	s.begin(v, a, now)
	if s.raw {
		s.pass(waited)
		return
	}
	s.rest -= len(waited)
	if s.into == nil && !s.sink {
		s.pass(waited)
	} else {
		s.gather(waited)
	}
}

// gather adds bytes to the message that was chosen last.
func (s *Stream) gather(data []byte) {
	if s.into != nil {
		s.into.add(data)
		s.into.whole = s.rest == 0
	}
	if s.rest == 0 {
		s.into, s.sink = nil, false
	}
}

// pass adds bytes of messages that were not chosen.
func (s *Stream) pass(data []byte) {
	if len(data) == 0 {
		return
	}
	last := len(s.runs) - 1
	if last < 0 || s.runs[last].chosen {
		s.runs = append(s.runs, &run{})
		last++
	}
	s.runs[last].add(data)
	s.runs[last].whole = s.rest == 0 && !s.raw
}

// Next is what may leave now, at most maxChunkBytes of it; nothing if nothing may. `wake` is when a
// delayed message is due, if one is.
func (s *Stream) Next(now time.Time, overtake bool) (chunk []byte, wake time.Time) {
	if s.next = s.sending; s.next != nil {
		return head(s.next), wake
	}
	for _, r := range s.runs {
		if r.free(now) {
			if chunk := head(r); chunk != nil {
				s.next = r
				return chunk, time.Time{}
			}
			continue
		}
		if !r.held && (wake.IsZero() || r.due.Before(wake)) {
			wake = r.due
		}
		if !overtake {
			break
		}
	}
	return nil, wake
}

func head(r *run) []byte {
	if len(r.parts) == 0 {
		return nil
	}
	return r.parts[0][:min(len(r.parts[0]), maxChunkBytes)]
}

// Sent notes that what Next returned has left.
func (s *Stream) Sent(chunk []byte) {
	r := s.next
	r.size -= len(chunk)
	if r.parts[0] = r.parts[0][len(chunk):]; len(r.parts[0]) == 0 {
		r.parts = r.parts[1:]
	}
	s.sending = r
	if len(r.parts) == 0 && r.whole {
		s.sending = nil
		s.remove(r)
		if r.chosen {
			s.tally.Held--
			s.tally.Released++
		}
	}
}

func (s *Stream) remove(r *run) {
	s.runs = slices.DeleteFunc(s.runs, func(other *run) bool { return other == r })
}

// Queued is how many bytes wait.
func (s *Stream) Queued() int {
	size := len(s.undecided)
	for _, r := range s.runs {
		size += r.size
	}
	return size
}

// Follow applies a mode that was set since the last call to the messages that are held.
func (s *Stream) Follow(a Attributes, version int, now time.Time) {
	if version == s.version {
		return
	}
	s.version = version
	for _, r := range slices.Clone(s.runs) {
		if !r.chosen || r == s.sending {
			continue
		}
		switch a.Mode {
		case Pass:
			r.held, r.due = false, time.Time{}
		case Delay:
			r.held, r.due = false, now.Add(time.Duration(a.DelayMS)*time.Millisecond)
		case Drop:
			s.drop(r)
		}
	}
}

func (s *Stream) drop(r *run) {
	s.remove(r)
	if s.sending == r {
		s.sending = nil
	}
	s.tally.Held--
	s.tally.Dropped++
	if r == s.into {
		s.into, s.sink = nil, true
	}
}

// End notes that no more bytes come, and returns the messages to keep, in their order. What waited
// behind a held message is discarded: its sender is gone, and it must not come before that message.
func (s *Stream) End(a Attributes, now time.Time) (kept [][]byte) {
	s.ended = true
	if waited := s.undecided; waited != nil {
		s.undecided, s.raw = nil, true // a message that will never be whole
		s.pass(waited)
	}
	behind := false
	for _, r := range slices.Clone(s.runs) {
		if r.chosen && !r.whole {
			s.drop(r)
			continue
		}
		switch {
		case r == s.sending || r.free(now) && !behind:
		case r.chosen && a.OnClose == Keep:
			kept = append(kept, slices.Concat(r.parts...))
			s.remove(r)
			s.tally.Held--
		case r.chosen:
			s.drop(r)
		default:
			s.remove(r)
		}
		behind = behind || !r.free(now) && !a.Overtake
	}
	return kept
}

// flushed makes everything leave as it has come, and says whether that keeps messages whole.
func (s *Stream) flushed() bool {
	for _, r := range s.runs {
		r.held, r.due = false, time.Time{}
	}
	if s.undecided != nil {
		waited := s.undecided
		s.undecided, s.raw = nil, true
		s.pass(waited)
	}
	last := len(s.runs) - 1
	return s.sending == nil || s.sending.whole || s.runs[last] == s.sending
}

// counted is what happened since the last call.
func (s *Stream) counted() Counts {
	tally := s.tally
	s.tally = Counts{}
	return tally
}
