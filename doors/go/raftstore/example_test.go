// An example for go doc, which go test runs.

package raftstore_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	"inkstone.example/inkstone/raftstore"
)

// One store is the log store and the stable store of a node: raft.NewRaft(config, machine, store,
// store, snapshots, transport).
func ExampleOpen() {
	directory, err := os.MkdirTemp("", "node")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(directory)
	store, err := raftstore.Open(filepath.Join(directory, "node"))
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	entries := []*raft.Log{
		{Index: 1, Term: 1, Data: []byte("one")},
		{Index: 2, Term: 1, Data: []byte("two")},
	}
	if err := store.StoreLogs(entries); err != nil {
		log.Fatal(err)
	}
	var entry raft.Log
	if err := store.GetLog(2, &entry); err != nil {
		log.Fatal(err)
	}
	fmt.Println(entry.Term, string(entry.Data))
	// Output: 1 two
}
