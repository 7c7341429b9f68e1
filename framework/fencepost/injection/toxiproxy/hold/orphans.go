package hold

import (
	"encoding/binary"
	"io"
	"net"
	"time"
)

// orphanLimit is how long connecting, sending a message, or waiting for its answer may take.
const orphanLimit = 5 * time.Second

// keep takes the messages of a connection that has ended.
func (t *Toxic) keep(messages [][]byte) {
	if len(messages) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.orphans = append(t.orphans, messages)
	t.counts.Orphans += len(messages)
	t.settle()
}

// settle does with the orphans what the mode says; the caller has the lock.
func (t *Toxic) settle() {
	a := t.set()
	if len(t.orphans) == 0 || a.Mode == Hold || a.Mode == Delay {
		return
	}
	orphans := t.orphans
	t.orphans = nil
	if a.Mode == Drop {
		t.counts.Dropped += t.counts.Orphans
		t.counts.Orphans = 0
		return
	}
	go t.deliver(orphans, a.Upstream)
}

// deliver sends orphans, those of one connection after another, and over a new one each.
func (t *Toxic) deliver(orphans [][][]byte, upstream string) {
	t.delivering.Lock()
	defer t.delivering.Unlock()
	for _, messages := range orphans {
		sent, answered, err := deliver(messages, upstream)
		counts := Counts{
			Orphans: -len(messages), Redelivered: sent, Answered: answered, Lost: len(messages) - sent,
		}
		if err != nil {
			counts.LastError = err.Error()
		}
		t.note(counts)
	}
}

// deliver sends messages in their order, and reads the answer to each before the next. An answer has
// no receiver any more. A message without one, as some requests are, is followed by the next in time.
func deliver(messages [][]byte, upstream string) (sent, answered int, err error) {
	connection, err := net.DialTimeout("tcp", upstream, orphanLimit)
	if err != nil {
		return 0, 0, err
	}
	defer connection.Close()
	for _, message := range messages {
		if err = connection.SetDeadline(time.Now().Add(orphanLimit)); err != nil {
			return sent, answered, err
		}
		if _, err = connection.Write(message); err != nil {
			return sent, answered, err
		}
		sent++
		var length uint32
		if err = binary.Read(connection, binary.BigEndian, &length); err != nil {
			continue
		}
		if _, err = io.CopyN(io.Discard, connection, int64(length)); err == nil {
			answered++
		}
	}
	return sent, answered, err
}
