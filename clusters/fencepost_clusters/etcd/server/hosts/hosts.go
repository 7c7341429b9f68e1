// Package hosts resolves names by a hosts file of the process, without a port and without a packet.
package hosts

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// A zero TTL: Go's resolver caches nothing, but it costs nothing to say so.
const ttl = 0

// Read reads lines of the form `address name...`; a # begins a comment.
func Read(lines io.Reader) (map[string]netip.Addr, error) {
	hosts := map[string]netip.Addr{}
	scanner := bufio.NewScanner(lines)
	for scanner.Scan() {
		line, _, _ := strings.Cut(scanner.Text(), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		address, err := netip.ParseAddr(words[0])
		if err != nil {
			return nil, err
		}
		if !address.Is4() {
			return nil, fmt.Errorf("%s is not an IPv4 address", address)
		}
		for _, name := range words[1:] {
			hosts[strings.ToLower(name)] = address
		}
	}
	return hosts, scanner.Err()
}

// Use makes the process resolve every name by hosts: Go's resolver speaks DNS over an in-memory
// connection to a responder in this process.
func Use(hosts map[string]netip.Addr) {
	net.DefaultResolver = &net.Resolver{
		PreferGo: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			resolver, responder := net.Pipe()
			go serve(responder, hosts)
			return resolver, nil
		},
	}
}

// serve answers queries until the resolver closes its end. Messages have DNS's framing for streams.
func serve(conn net.Conn, hosts map[string]netip.Addr) {
	defer conn.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		reply, err := answer(query, hosts)
		if err != nil {
			return
		}
		framed := binary.BigEndian.AppendUint16(nil, uint16(len(reply)))
		if _, err := conn.Write(append(framed, reply...)); err != nil {
			return
		}
	}
}

// answer makes the reply to one query: an A record, no record of another type, or "no such name".
func answer(query []byte, hosts map[string]netip.Addr) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil {
		return nil, err
	}
	question, err := parser.Question()
	if err != nil {
		return nil, err
	}
	name := strings.ToLower(strings.TrimSuffix(question.Name.String(), "."))
	address, known := hosts[name]
	reply := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID:                 header.ID,
			Response:           true,
			Authoritative:      true,
			RecursionDesired:   header.RecursionDesired,
			RecursionAvailable: true,
		},
		Questions: []dnsmessage.Question{question},
	}
	if !known {
		reply.RCode = dnsmessage.RCodeNameError
	} else if question.Type == dnsmessage.TypeA {
		reply.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{
				Name: question.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: ttl,
			},
			Body: &dnsmessage.AResource{A: address.As4()},
		}}
	}
	return reply.Pack()
}
