// Package stores opens the log stores that are compared, each as its own project opens it: synced, with its defaults.
package stores

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	"inkstone.example/inkstone/raftstore"
)

// Store is what a node of raft needs.
type Store interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

// Names are those that Open knows.
var Names = []string{"inkstone", "raft-wal", "raft-boltdb"}

// Open opens a store in a directory, which is created.
func Open(name, path string) (Store, error) { return open(name, path, wal.DefaultSegmentSize) }

// OpenSmall is Open for a small disk: raft-wal makes each segment as large as it may become.
func OpenSmall(name, path string) (Store, error) { return open(name, path, 1<<20) }

func open(name, path string, segmentBytes int) (Store, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	switch name {
	case "inkstone":
		return raftstore.Open(path)
	case "raft-wal":
		return wal.Open(path, wal.WithLogger(hclog.NewNullLogger()), wal.WithSegmentSize(segmentBytes))
	case "raft-boltdb":
		return raftboltdb.NewBoltStore(filepath.Join(path, "raft.db"))
	}
	return nil, fmt.Errorf("no store is called %q; these are known: %v", name, Names)
}

// Each calls f with every entry of a store, in order.
func Each(store Store, f func(*raft.Log) error) error {
	first, err := store.FirstIndex()
	if err != nil {
		return err
	}
	last, err := store.LastIndex()
	if err != nil || last == 0 {
		return err
	}
	for index := first; index <= last; index++ {
		var log raft.Log
		if err := store.GetLog(index, &log); err != nil {
			return errors.Join(fmt.Errorf("entry %d of %d to %d", index, first, last), err)
		}
		if err := f(&log); err != nil {
			return err
		}
	}
	return nil
}
