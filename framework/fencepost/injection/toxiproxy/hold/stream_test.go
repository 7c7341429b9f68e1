package hold

import (
	"bytes"
	"encoding/binary"
	"math/rand"
	"slices"
	"testing"
	"time"
)

var start = time.Unix(1_000_000, 0)

// message is a length, a key of two bytes, and a body.
func message(key uint16, body string) []byte {
	content := binary.BigEndian.AppendUint16(nil, key)
	content = append(content, "......"...) // what the least message has
	content = append(content, body...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), content...)
}

func holding(keys ...uint16) Attributes {
	a := defaults()
	a.Mode, a.Upstream = Hold, "127.0.0.1:1"
	for _, key := range keys {
		a.Prefixes = append(a.Prefixes, binary.BigEndian.AppendUint16(nil, key))
	}
	return a
}

func always() bool { return true }

// drain takes out of a stream whatever may leave now.
func drain(t *testing.T, s *Stream, now time.Time, overtake bool) []byte {
	t.Helper()
	var out []byte
	for {
		chunk, _ := s.Next(now, overtake)
		if chunk == nil {
			return out
		}
		if len(chunk) > maxChunkBytes {
			t.Fatalf("a chunk of %d bytes", len(chunk))
		}
		out = append(out, chunk...)
		s.Sent(chunk)
	}
}

func expect(t *testing.T, got []byte, want ...[]byte) {
	t.Helper()
	if !bytes.Equal(got, bytes.Join(want, nil)) {
		t.Fatalf("%q left, not %q", got, bytes.Join(want, nil))
	}
}

func TestEverythingBehindAHeldMessageWaitsAndLeavesInOrder(t *testing.T) {
	s, a := new(Stream), holding(5)
	one, two, three := message(1, "one"), message(5, "two"), message(1, "three")
	s.Take(slices.Concat(one, two, three), a, start, always)
	expect(t, drain(t, s, start, false), one)
	a.Mode = Pass
	s.Follow(a, 1, start)
	expect(t, drain(t, s, start, false), two, three)
	if c := s.counted(); c.Seen != 3 || c.Taken != 1 || c.Released != 1 || c.Held != 0 {
		t.Fatalf("%+v", c)
	}
}

func TestLaterMessagesOvertakeWhereTheyMay(t *testing.T) {
	s, a := new(Stream), holding(5)
	one, two, three := message(5, "one"), message(1, "two"), message(1, "three")
	s.Take(slices.Concat(one, two, three[:5]), a, start, always)
	expect(t, drain(t, s, start, true), two)
	a.Mode = Pass
	s.Follow(a, 1, start)
	s.Take(three[5:], a, start, always)
	expect(t, drain(t, s, start, true), one, three)
}

func TestAReleasedMessageDoesNotInterruptOneThatIsHalfSent(t *testing.T) {
	s, a := new(Stream), holding(5)
	one, two := message(5, "one"), message(1, "two")
	s.Take(slices.Concat(one, two[:12]), a, start, always)
	expect(t, drain(t, s, start, true), two[:12])
	a.Mode = Pass
	s.Follow(a, 1, start)
	expect(t, drain(t, s, start, true))
	s.Take(two[12:], a, start, always)
	expect(t, drain(t, s, start, true), two[12:], one)
}

func TestAMessageThatBeganBeforeTheToxicWasArmedPasses(t *testing.T) {
	s := new(Stream)
	one := message(5, "one")
	s.Take(one[:8], defaults(), start, always)
	s.Follow(holding(5), 1, start)
	s.Take(one[8:], holding(5), start, always)
	expect(t, drain(t, s, start, false), one)
}

func TestADelayedMessageLeavesWhenItIsDue(t *testing.T) {
	s, a := new(Stream), holding(5)
	a.Mode, a.DelayMS = Delay, 40
	one, two := message(5, "one"), message(1, "two")
	s.Take(slices.Concat(one, two), a, start, always)
	chunk, wake := s.Next(start, false)
	if chunk != nil || !wake.Equal(start.Add(40*time.Millisecond)) {
		t.Fatalf("%q may leave, and the next at %v", chunk, wake)
	}
	expect(t, drain(t, s, wake, false), one, two)
}

func TestADroppedMessageIsGoneAndTheRestPasses(t *testing.T) {
	s, a := new(Stream), holding(5)
	a.Mode = Drop
	one, two := message(5, "one"), message(1, "two")
	s.Take(one[:9], a, start, always)
	s.Take(append(one[9:], two...), a, start, always)
	expect(t, drain(t, s, start, false), two)
	if c := s.counted(); c.Taken != 1 || c.Dropped != 1 || c.Held != 0 {
		t.Fatalf("%+v", c)
	}
}

func TestWhatIsHeldCanBeDropped(t *testing.T) {
	s, a := new(Stream), holding(5)
	one, two := message(5, "one"), message(1, "two")
	s.Take(slices.Concat(one, two), a, start, always)
	a.Mode = Drop
	s.Follow(a, 1, start)
	expect(t, drain(t, s, start, false), two)
}

func TestAMessageIsChosenByWhatItContains(t *testing.T) {
	a := holding(5)
	a.Containing = []Hex{Hex("orders")}
	for _, split := range []int{1, 5, 7, 13} {
		s := new(Stream)
		other, chosen := message(5, "payments"), message(5, "the orders")
		s.Take(other[:split], a, start, always)
		s.Take(append(other[split:], chosen[:split]...), a, start, always)
		s.Take(chosen[split:], a, start, always)
		expect(t, drain(t, s, start, false), other)
		if c := s.counted(); c.Taken != 1 || c.Held != 1 {
			t.Fatalf("split at %d: %+v", split, c)
		}
	}
}

func TestBytesThatAreNoMessagesPassAndAreCounted(t *testing.T) {
	s, text := new(Stream), []byte("GET / HTTP/1.0\r\n\r\n")
	s.Take(text[:3], holding(), start, always)
	s.Take(text[3:], holding(), start, always)
	expect(t, drain(t, s, start, false), text)
	if c := s.counted(); c.Unframed != 1 || c.Taken != 0 {
		t.Fatalf("%+v", c)
	}
}

func TestAtTheEndHeldMessagesAreKeptAndWhatWaitedBehindIsNot(t *testing.T) {
	s, a := new(Stream), holding(5)
	first, one, behind, two, half := message(1, "first"), message(5, "one"), message(1, "behind"),
		message(5, "two"), message(5, "half")
	s.Take(slices.Concat(first, one, behind, two, half[:9]), a, start, always)
	kept := s.End(a, start)
	if len(kept) != 2 || !bytes.Equal(kept[0], one) || !bytes.Equal(kept[1], two) {
		t.Fatalf("%q were kept", kept)
	}
	expect(t, drain(t, s, start, false), first)
	if c := s.counted(); c.Taken != 3 || c.Held != 0 || c.Dropped != 1 {
		t.Fatalf("%+v", c)
	}
}

func TestAtTheEndHeldMessagesAreDiscardedWhereAsked(t *testing.T) {
	s, a := new(Stream), holding(5)
	a.OnClose = Discard
	s.Take(message(5, "one"), a, start, always)
	if kept := s.End(a, start); kept != nil {
		t.Fatalf("%q were kept", kept)
	}
	if c := s.counted(); c.Dropped != 1 || c.Held != 0 {
		t.Fatalf("%+v", c)
	}
}

// Random messages, splits, modes and moments: what leaves is whole messages, those of each kind in
// their order, and the counts add up.
func TestWhateverHappensMessagesStayWholeAndInOrder(t *testing.T) {
	for seed := range int64(400) {
		random := rand.New(rand.NewSource(seed))
		s, a, version, now := new(Stream), defaults(), 0, start
		var sent [][]byte
		var waiting, out []byte
		var counts Counts
		taken := map[int]bool{}
		for range 40 {
			for range random.Intn(4) {
				body := make([]byte, random.Intn(1+random.Intn(2_000)))
				random.Read(body)
				one := message(uint16(random.Intn(3)), string(body))
				binary.BigEndian.PutUint32(one[6:], uint32(len(sent))) // its number
				sent = append(sent, one)
				waiting = append(waiting, one...)
			}
			n := random.Intn(len(waiting) + 1)
			chunk := slices.Clone(waiting[:n])
			waiting = waiting[n:]
			if random.Intn(3) == 0 {
				overtake := a.Overtake
				a = holding(uint16(random.Intn(3)))
				a.Mode = []Mode{Pass, Hold, Delay}[random.Intn(3)]
				a.DelayMS = 1 + random.Intn(50)
				a.Overtake = overtake
				version++
				s.Follow(a, version, now)
			}
			s.Take(chunk, a, now, func() bool { return random.Intn(2) == 0 })
			for range random.Intn(5) {
				if some, _ := s.Next(now, a.Overtake); some != nil {
					out = append(out, some...)
					s.Sent(some)
				}
			}
			now = now.Add(time.Duration(random.Intn(30)) * time.Millisecond)
			a.Overtake = seed%2 == 0
		}
		a.Mode = Pass
		s.Follow(a, version+1, now)
		s.Take(waiting, a, now, always)
		out = append(out, drain(t, s, now, a.Overtake)...)
		counts.add(s.counted())
		if seed%2 == 1 {
			expect(t, out, sent...)
		}
		for len(out) > 0 {
			size := 4 + int(binary.BigEndian.Uint32(out))
			number := int(binary.BigEndian.Uint32(out[6:]))
			if size > len(out) || taken[number] || !bytes.Equal(out[:size], sent[number]) {
				t.Fatalf("seed %d: message %d is damaged or came twice", seed, number)
			}
			taken[number] = true
			out = out[size:]
		}
		if len(taken) != len(sent) || counts.Held != 0 || counts.Taken != counts.Released {
			t.Fatalf("seed %d: %d of %d came, %+v", seed, len(taken), len(sent), counts)
		}
	}
}
