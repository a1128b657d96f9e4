// The benchmarks of hashicorp/raft that two of the stores refuse as they stand, with what raft itself does.

package stores

import (
	"testing"

	"github.com/hashicorp/raft"
)

// StoreLog is raftbench.StoreLog with indexes that begin at 1: two of the stores refuse an entry 0, which raft never stores.
func StoreLog(b *testing.B, store raft.LogStore) {
	for n := range b.N {
		if err := store.StoreLog(&raft.Log{Index: uint64(n) + 1, Data: []byte("data")}); err != nil {
			b.Fatal(err)
		}
	}
}

// DeleteRange is raftbench.DeleteRange without gaps between the entries, which stores that are monotonic refuse.
func DeleteRange(b *testing.B, store raft.LogStore) {
	logs := make([]*raft.Log, 3*b.N)
	for i := range logs {
		logs[i] = &raft.Log{Index: uint64(i) + 1, Data: []byte("data")}
	}
	if err := store.StoreLogs(logs); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for n := range b.N {
		if err := store.DeleteRange(uint64(3*n)+1, uint64(3*n)+3); err != nil {
			b.Fatal(err)
		}
	}
}
