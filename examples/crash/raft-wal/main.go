// hashicorp/raft-wal as a writer and a reader: store write|read DIR
package main

import (
	"fmt"
	"os"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

func main() {
	what, dir := os.Args[1], os.Args[2]+"/wal"
	check(os.MkdirAll(dir, 0o700))
	log := must(wal.Open(dir))
	next := must(log.FirstIndex())
	last := must(log.LastIndex())
	for ; what == "read" && next != 0 && next <= last; next++ {
		var entry raft.Log
		check(log.GetLog(next, &entry))
		fmt.Printf("%s\n", entry.Data)
	}
	for what == "write" {
		last++
		item := fmt.Sprint("item ", last)
		check(log.StoreLog(&raft.Log{Index: last, Term: 1, Data: []byte(item)}))
		fmt.Println(item)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
