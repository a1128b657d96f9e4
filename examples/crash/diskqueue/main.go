// NSQ's disk queue as a writer and a reader: store write|read DIR nsqd|every-1
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/nsqio/go-diskqueue"
)

func main() {
	what, dir, setting := os.Args[1], os.Args[2], os.Args[3]
	// As nsqd does by default: --max-bytes-per-file, --max-msg-size, --sync-every, --sync-timeout.
	every := int64(2500)
	if setting == "every-1" {
		every = 1
	}
	queue := diskqueue.New("items", dir, 100<<20, 1, 1<<20, every, 2*time.Second, quiet)
	number := queue.Depth()
	for ; what == "read" && number > 0; number-- {
		fmt.Printf("%s\n", <-queue.ReadChan())
	}
	for what == "write" {
		number++
		item := fmt.Sprint("item ", number)
		if err := queue.Put([]byte(item)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(item)
	}
}

func quiet(diskqueue.LogLevel, string, ...any) {}
