package hosts

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestNamesAreThoseOfTheFile(t *testing.T) {
	known, err := Read(strings.NewReader("127.40.1.2 etcd-2.fencepost other # a comment\n\n# none\n"))
	if err != nil {
		t.Fatal(err)
	}
	before := net.DefaultResolver
	defer func() { net.DefaultResolver = before }()
	Use(known)
	for _, name := range []string{"etcd-2.fencepost", "ETCD-2.fencepost", "other"} {
		found, err := net.DefaultResolver.LookupNetIP(context.Background(), "ip4", name)
		if err != nil || len(found) != 1 || found[0].Unmap() != netip.MustParseAddr("127.40.1.2") {
			t.Errorf("%s is %v, %v", name, found, err)
		}
	}
	if found, err := net.LookupHost("etcd-9.fencepost"); err == nil {
		t.Errorf("a name that is not in the file is %v", found)
	}
	if dialled, err := (&net.Dialer{}).Dial("tcp", "etcd-2.fencepost:1"); err == nil {
		dialled.Close()
		t.Error("nothing listens there")
	} else if !strings.Contains(err.Error(), "127.40.1.2:1") {
		t.Errorf("dialled elsewhere: %v", err)
	}
}

func TestAnotherFormatIsRefused(t *testing.T) {
	for _, line := range []string{"etcd-2 127.40.1.2", "::1 etcd-2"} {
		if _, err := Read(strings.NewReader(line)); err == nil {
			t.Errorf("%q was read", line)
		}
	}
}
