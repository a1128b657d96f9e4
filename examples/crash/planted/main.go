// The snapshots of hashicorp/raft as a writer and a reader:
// store write|read DIR sound|no-sync|no-directory-sync|early. Each snapshot has all items that were
// put until then. The two without a sync are programs of their own, built from a copy of
// file_snapshot.go in which that sync is missing (`install` has them).
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

func main() {
	what, dir, setting := os.Args[1], os.Args[2], os.Args[3]
	store := must(raft.NewFileSnapshotStoreWithLogger(dir, 1000, hclog.NewNullLogger()))
	items := ""
	number := uint64(0)
	if found := must(store.List()); len(found) > 0 {
		_, snapshot := must2(store.Open(found[0].ID)) // fails if its sum is wrong
		items = string(must(io.ReadAll(snapshot)))
		number = found[0].Index
	}
	if what == "read" {
		fmt.Print(items)
		return
	}
	for {
		number++
		item := fmt.Sprintf("item %d\n", number)
		items += item
		sink := must(store.Create(1, number, 1, raft.Configuration{}, 0, nil))
		must(io.WriteString(sink, items))
		if setting == "early" {
			fmt.Print(item)
		}
		check(sink.Close())
		if setting != "early" {
			fmt.Print(item)
		}
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func must2[T, U any](one T, other U, err error) (T, U) {
	check(err)
	return one, other
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
