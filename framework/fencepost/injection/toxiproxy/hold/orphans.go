package hold

import (
	"encoding/binary"
	"io"
	"net"
	"time"
)

const (
	// sendLimit is how long connecting, or sending a message, may take.
	sendLimit = 5 * time.Second
	// answerLimit is how long the answer to a message is awaited before the next one is sent.
	answerLimit = time.Second
)

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
		sent, err := deliver(messages, upstream, t.note)
		if err != nil {
			lost := len(messages) - sent
			t.note(Counts{Orphans: -lost, Lost: lost, LastError: err.Error()})
		}
	}
}

// deliver sends messages in their order, and reads the answer to each before the next: an answer has
// no receiver any more. Some messages have none, so the next one follows in time all the same.
func deliver(messages [][]byte, upstream string, note func(Counts)) (sent int, err error) {
	connection, err := net.DialTimeout("tcp", upstream, sendLimit)
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	for _, message := range messages {
		connection.SetDeadline(time.Now().Add(sendLimit))
		if _, err = connection.Write(message); err != nil {
			return sent, err
		}
		sent++
		note(Counts{Orphans: -1, Redelivered: 1})
		connection.SetDeadline(time.Now().Add(answerLimit))
		if answered(connection) {
			note(Counts{Answered: 1})
		}
	}
	return sent, nil
}

// answered reads one message.
func answered(connection net.Conn) bool {
	var length uint32
	if binary.Read(connection, binary.BigEndian, &length) != nil {
		return false
	}
	_, err := io.CopyN(io.Discard, connection, int64(length))
	return err == nil
}
