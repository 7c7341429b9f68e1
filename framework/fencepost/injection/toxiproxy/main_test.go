package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheSocketBelongsToItsUserAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	listener, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	found, err := os.Stat(path)
	if err != nil || found.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", found.Mode(), err)
	}
}

func TestASocketThatIsThereIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(path); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Fatal(err)
	}
}

func TestTheApiKnowsTheToxicAndCountsBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	ended := make(chan error, 1)
	go func() { ended <- run(path) }()
	dial := func(context.Context, string, string) (net.Conn, error) {
		for {
			connection, err := net.Dial("unix", path)
			if err == nil || len(ended) > 0 {
				return connection, err
			}
		}
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial}}
	ask := func(path, body string) string {
		answer, err := client.Post("http://toxiproxy"+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return string(text)
	}
	ask("/proxies", `{"name": "p", "listen": "127.0.0.1:0", "upstream": "127.0.0.1:1"}`)
	shown := ask("/proxies/p/toxics", `{"name": "h", "type": "hold", "stream": "upstream"}`)
	if !strings.Contains(shown, `"counts":{"seen":0`) {
		t.Fatal(shown)
	}
	metrics, err := client.Get("http://toxiproxy/metrics")
	if err != nil || metrics.StatusCode != http.StatusOK {
		t.Fatal(metrics, err)
	}
	metrics.Body.Close()
}
