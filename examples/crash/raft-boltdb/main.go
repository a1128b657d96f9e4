// hashicorp/raft-boltdb as a writer and a reader: store write|read DIR default|no-sync
package main

import (
	"fmt"
	"os"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

func main() {
	what, path, setting := os.Args[1], os.Args[2]+"/raft.db", os.Args[3]
	log := must(raftboltdb.New(raftboltdb.Options{Path: path, NoSync: setting == "no-sync"}))
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
