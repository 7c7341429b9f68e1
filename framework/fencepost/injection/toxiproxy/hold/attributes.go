package hold

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Mode is what becomes of the messages that are chosen.
type Mode string

const (
	// Pass chooses nothing. Messages that are held leave in their order.
	Pass Mode = "pass"
	// Hold keeps the chosen messages until another mode is set.
	Hold Mode = "hold"
	// Delay keeps each chosen message for DelayMS milliseconds.
	Delay Mode = "delay"
	// Drop discards the chosen messages, and those that are held.
	Drop Mode = "drop"
)

const (
	// Keep takes held messages out of a connection that ends. They are delivered over a new
	// connection when the mode becomes Pass.
	Keep = "keep"
	// Discard drops held messages together with their connection.
	Discard = "discard"
)

const defaultMaxHeldBytes = 1 << 20

// Hex is a byte string that is written in hexadecimal in JSON.
type Hex []byte

// MarshalText writes the bytes in hexadecimal.
func (h Hex) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h), nil }

// UnmarshalText reads hexadecimal.
func (h *Hex) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

// Attributes are what an API call may set. One that a call does not name stays as it is.
type Attributes struct {
	Mode Mode `json:"mode"`
	// Prefixes are the beginnings of messages that match, without their length; none: all do.
	Prefixes []Hex `json:"prefixes"`
	// Containing are byte strings of which a message that matches holds at least one in its first
	// 64 KiB; none: no demand.
	Containing []Hex `json:"containing"`
	// Skip and First choose among the messages that match, over all connections of a proxy: the
	// first First (0: all) after Skip. The count begins anew with each call that sets another mode
	// than Pass.
	Skip  int `json:"skip"`
	First int `json:"first"`
	// DelayMS is for the mode Delay.
	DelayMS int `json:"delay_ms"`
	// Overtake lets later messages of a connection leave while one is held.
	Overtake bool `json:"overtake"`
	// OnClose is Keep or Discard.
	OnClose string `json:"on_close"`
	// Upstream is the address to which kept messages are delivered.
	Upstream string `json:"upstream"`
	// MaxHeldBytes bounds what one connection may have waiting: the toxic reads no more beyond it.
	MaxHeldBytes int `json:"max_held_bytes"`
}

func defaults() Attributes {
	return Attributes{Mode: Pass, OnClose: Keep, MaxHeldBytes: defaultMaxHeldBytes}
}

// updated is a copy of the attributes, changed as the JSON object says.
func (a Attributes) updated(object []byte) (Attributes, error) {
	// Decoding writes into the slices that are there, and connections read them meanwhile.
	a.Prefixes, a.Containing = slices.Clone(a.Prefixes), slices.Clone(a.Containing)
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&a); err != nil {
		return a, err
	}
	return a, a.check()
}

func (a Attributes) check() error {
	if !slices.Contains([]Mode{Pass, Hold, Delay, Drop}, a.Mode) {
		return fmt.Errorf("the mode is pass, hold, delay or drop, not %q", a.Mode)
	}
	if a.OnClose != Keep && a.OnClose != Discard {
		return fmt.Errorf("on_close is keep or discard, not %q", a.OnClose)
	}
	if a.Skip < 0 || a.First < 0 || a.DelayMS < 0 {
		return errors.New("skip, first and delay_ms are not negative")
	}
	if a.MaxHeldBytes < 1 {
		return errors.New("max_held_bytes is at least 1")
	}
	if a.Mode == Delay && a.DelayMS == 0 {
		return errors.New("the mode delay needs a delay_ms")
	}
	if a.Mode != Pass && a.OnClose == Keep && a.Upstream == "" {
		return errors.New("to keep messages needs an upstream")
	}
	return nil
}

// longestPrefix is how many bytes of a message decide whether a prefix matches.
func (a Attributes) longestPrefix() int {
	longest := 0
	for _, prefix := range a.Prefixes {
		longest = max(longest, len(prefix))
	}
	return longest
}

func (a Attributes) begins(message []byte) bool {
	return len(a.Prefixes) == 0 || slices.ContainsFunc(a.Prefixes, func(prefix Hex) bool {
		return bytes.HasPrefix(message, prefix)
	})
}

func (a Attributes) contains(message []byte) bool {
	return len(a.Containing) == 0 || slices.ContainsFunc(a.Containing, func(part Hex) bool {
		return bytes.Contains(message, part)
	})
}
