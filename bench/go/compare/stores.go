// The stores beside one another. raft calls StoreLogs on one goroutine of a node, so that what is concurrent is of two kinds: the entries of
// one call (a leader collects up to 64 proposals), and the nodes of several groups in one process.

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftbench "github.com/hashicorp/raft/bench"
	"inkstone.example/bench/stores"
)

const entryBytes = 256

// keep is how many entries a node keeps; it deletes the older ones, as raft does after a snapshot. Not timed.
const keep = 10_000

type node struct {
	store stores.Store
	last  uint64
}

func (n *node) storeLogs(count int, data []byte) error {
	logs := make([]*raft.Log, count)
	for i := range logs {
		n.last++
		logs[i] = &raft.Log{Index: n.last, Term: 1, Data: data}
	}
	return n.store.StoreLogs(logs)
}

func (n *node) trim() error {
	first, err := n.store.FirstIndex()
	if err != nil || n.last-first < 2*keep {
		return err
	}
	return n.store.DeleteRange(first, n.last-keep)
}

// loads compares the entries a second of some nodes at once, each with batches of a size.
func loads(path string) error {
	for _, load := range []struct{ nodes, batch int }{{1, 1}, {1, 64}, {8, 1}, {8, 64}, {64, 1}, {64, 64}} {
		if load.nodes > nodesMax {
			continue
		}
		var ways []way
		var all []*node
		for _, name := range stores.Names {
			var group []*node
			for i := range load.nodes {
				store, err := stores.Open(name, filepath.Join(path, fmt.Sprintf("%s-%d-%d-%d", name, load.nodes, load.batch, i)))
				if err != nil {
					return err
				}
				group = append(group, &node{store: store})
			}
			all = append(all, group...)
			ways = append(ways, way{name, func() (float64, error) { return together(group, load.batch) }})
		}
		if err := compare(fmt.Sprintf("%d node(s), batches of %d x %d bytes", load.nodes, load.batch, entryBytes), ways); err != nil {
			return err
		}
		for _, node := range all {
			if err := node.store.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

func together(nodes []*node, batch int) (float64, error) {
	data := make([]byte, entryBytes)
	errs := make([]error, len(nodes))
	before := stored(nodes)
	var group sync.WaitGroup
	start := time.Now()
	for i, node := range nodes {
		group.Go(func() {
			for time.Since(start) < slice && errs[i] == nil {
				errs[i] = node.storeLogs(batch, data)
			}
		})
	}
	group.Wait()
	rate := float64(stored(nodes)-before) / time.Since(start).Seconds()
	for i, node := range nodes {
		if errs[i] == nil {
			errs[i] = node.trim()
		}
		if errs[i] != nil {
			return 0, errs[i]
		}
	}
	return rate, nil
}

func stored(nodes []*node) (sum uint64) {
	for _, node := range nodes {
		sum += node.last
	}
	return sum
}

// own compares by the benchmarks that hashicorp/raft has for stores, in calls a second.
func own(path string) error {
	type bench struct {
		name string
		run  func(*testing.B, stores.Store)
	}
	log := func(f func(*testing.B, raft.LogStore)) func(*testing.B, stores.Store) {
		return func(b *testing.B, store stores.Store) { f(b, store) }
	}
	stable := func(f func(*testing.B, raft.StableStore)) func(*testing.B, stores.Store) {
		return func(b *testing.B, store stores.Store) { f(b, store) }
	}
	number := 0
	for _, bench := range []bench{
		{"FirstIndex", log(raftbench.FirstIndex)}, {"LastIndex", log(raftbench.LastIndex)}, {"GetLog", log(raftbench.GetLog)},
		{"StoreLog", log(stores.StoreLog)}, {"StoreLogs", log(raftbench.StoreLogs)}, {"DeleteRange", log(stores.DeleteRange)},
		{"Set", stable(raftbench.Set)}, {"Get", stable(raftbench.Get)},
		{"SetUint64", stable(raftbench.SetUint64)}, {"GetUint64", stable(raftbench.GetUint64)},
	} {
		var ways []way
		for _, name := range stores.Names {
			ways = append(ways, way{name, func() (float64, error) {
				var failed error
				result := testing.Benchmark(func(b *testing.B) {
					b.StopTimer()
					number++
					place := filepath.Join(path, fmt.Sprintf("%s-%d", bench.name, number))
					defer os.RemoveAll(place)
					store, err := stores.Open(name, place)
					if failed = err; err != nil {
						b.FailNow()
					}
					defer store.Close()
					b.StartTimer()
					bench.run(b, store)
					b.StopTimer()
				})
				if failed == nil && result.N == 0 {
					failed = fmt.Errorf("the benchmark failed")
				}
				return float64(result.N) / result.T.Seconds(), failed
			}})
		}
		if err := compare(bench.name, ways); err != nil {
			return err
		}
	}
	return nil
}
