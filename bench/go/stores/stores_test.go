// The benchmarks that hashicorp/raft has for stores, on each store: `go test -bench .` runs them. `compare own` has them in turns.

package stores

import (
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	raftbench "github.com/hashicorp/raft/bench"
)

func BenchmarkStores(b *testing.B) {
	logs := []struct {
		name string
		run  func(*testing.B, raft.LogStore)
	}{
		{"FirstIndex", raftbench.FirstIndex}, {"LastIndex", raftbench.LastIndex}, {"GetLog", raftbench.GetLog}, {"StoreLog", StoreLog},
		{"StoreLogs", raftbench.StoreLogs}, {"DeleteRange", DeleteRange},
	}
	stable := []struct {
		name string
		run  func(*testing.B, raft.StableStore)
	}{
		{"Set", raftbench.Set}, {"Get", raftbench.Get}, {"SetUint64", raftbench.SetUint64}, {"GetUint64", raftbench.GetUint64},
	}
	for _, name := range Names {
		with := func(bench string, run func(*testing.B, Store)) {
			b.Run(name+"/"+bench, func(b *testing.B) {
				b.StopTimer()
				store, err := OpenSmall(name, filepath.Join(b.TempDir(), "store"))
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				run(b, store)
				b.StopTimer()
				if err := store.Close(); err != nil {
					b.Fatal(err)
				}
			})
		}
		for _, bench := range logs {
			with(bench.name, func(b *testing.B, store Store) { bench.run(b, store) })
		}
		for _, bench := range stable {
			with(bench.name, func(b *testing.B, store Store) { bench.run(b, store) })
		}
	}
}

// Each store gives back what was stored. Not opened again here: raft-wal 0.4.0 keeps the lock of its index of segments when it is closed, and
// opening it again in the same process waits for ever. `lines` opens each again, in another process.
func TestStores(t *testing.T) {
	for _, name := range Names {
		store, err := OpenSmall(name, filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(name, err)
		}
		for index := uint64(1); index <= 10; index++ {
			if err := store.StoreLog(&raft.Log{Index: index, Term: 1, Data: []byte(name)}); err != nil {
				t.Fatal(name, err)
			}
		}
		next := uint64(1)
		if err := Each(store, func(log *raft.Log) error {
			if log.Index != next || string(log.Data) != name {
				t.Fatal(name, next, log)
			}
			next++
			return nil
		}); err != nil || next != 11 {
			t.Fatal(name, next, err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(name, err)
		}
	}
}
