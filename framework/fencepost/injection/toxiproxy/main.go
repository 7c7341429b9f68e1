// A toxiproxy server with the toxics `cut` and `hold`, whose API is on a Unix socket.
//
// The stock server's API is on TCP, without authentication: any user of the machine could change the
// links of a run. This socket belongs to its user alone. Proxies listen as they do in the stock
// server, and every stock toxic is there.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "fencepost/toxiproxy/cut"
	_ "fencepost/toxiproxy/hold"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/collectors"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

func main() {
	socket := flag.String("socket", "", "path of the Unix socket for the API")
	flag.Parse()
	if *socket == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*socket); err != nil {
		fmt.Fprintf(os.Stderr, "the API on %s: %v\n", *socket, err)
		os.Exit(1)
	}
}

// run serves the API until SIGINT or SIGTERM.
func run(socket string) error {
	listener, err := listen(socket)
	if err != nil {
		return err
	}
	metrics := toxiproxy.NewMetricsContainer(prometheus.NewRegistry())
	metrics.ProxyMetrics = collectors.NewProxyMetricCollectors()
	logger := zerolog.New(os.Stdout).With().Timestamp().Logger().Level(zerolog.InfoLevel)
	// The limits are those of the stock server.
	server := &http.Server{
		Handler:      toxiproxy.NewServer(metrics, logger).Routes(),
		ReadTimeout:  15 * time.Second,
		WriteTimeout: 30 * time.Second,
		IdleTimeout:  60 * time.Second,
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// listen makes a socket that its user alone may open: the mode is set before the socket can be seen.
func listen(socket string) (net.Listener, error) {
	before := syscall.Umask(0o177)
	defer syscall.Umask(before)
	return net.Listen("unix", socket)
}
