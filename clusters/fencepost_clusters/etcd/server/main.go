// A stock etcd server with a hosts file of its own.
//
// A member's peer URLs are the same for all diallers, yet every dialler has a link of its own to each
// peer. So peer URLs hold host names, and each member resolves them by the file that FENCEPOST_HOSTS
// names. Its lines are those of /etc/hosts. Nothing else of etcd is changed.
package main

import (
	"fmt"
	"os"

	"fencepost/etcd/hosts"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	if path := os.Getenv("FENCEPOST_HOSTS"); path != "" {
		file, err := os.Open(path)
		if err != nil {
			fmt.Fprintf(os.Stderr, "FENCEPOST_HOSTS names a file that cannot be read: %v\n", err)
			os.Exit(2)
		}
		known, err := hosts.Read(file)
		file.Close()
		if err != nil {
			fmt.Fprintf(os.Stderr, "FENCEPOST_HOSTS names a file of another format: %v\n", err)
			os.Exit(2)
		}
		hosts.Use(known)
	}
	etcdmain.Main(os.Args)
}
