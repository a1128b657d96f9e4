// Raft itself on the stores: three nodes, one that is away until it needs a snapshot, and all opened again.

package raftstore

import (
	"encoding/binary"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// sum is a state machine that counts the commands, and remembers the last.
type sum struct {
	mu    sync.Mutex
	count uint64
	last  string
}

func (s *sum) Apply(log *raft.Log) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A command that lost its leader may have been applied all the same; then it comes twice.
	if string(log.Data) != s.last {
		s.count++
	}
	s.last = string(log.Data)
	return s.count
}

func (s *sum) Snapshot() (raft.FSMSnapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return snapshot(append(binary.LittleEndian.AppendUint64(nil, s.count), s.last...)), nil
}

func (s *sum) Restore(from io.ReadCloser) error {
	b, err := io.ReadAll(from)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.count, s.last = binary.LittleEndian.Uint64(b), string(b[8:])
	}
	return err
}

func (s *sum) is() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.count, " ", s.last)
}

type snapshot []byte

func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s); err != nil {
		return err
	}
	return sink.Close()
}
func (s snapshot) Release() {}

type member struct {
	raft  *raft.Raft
	store *Store
	sum   *sum
	at    *raft.InmemTransport
}

func start(t *testing.T, path, name string, all []raft.Server, others []*member) *member {
	t.Helper()
	m := &member{sum: &sum{}}
	store, err := Open(filepath.Join(path, name))
	well(t, err)
	m.store = store
	config := raft.DefaultConfig()
	config.LocalID = raft.ServerID(name)
	config.HeartbeatTimeout, config.ElectionTimeout = 200*time.Millisecond, 200*time.Millisecond
	config.LeaderLeaseTimeout, config.CommitTimeout = 100*time.Millisecond, 5*time.Millisecond
	config.TrailingLogs, config.SnapshotInterval = 5, time.Hour
	config.LogOutput = io.Discard
	snapshots, err := raft.NewFileSnapshotStore(filepath.Join(path, name), 1, io.Discard)
	well(t, err)
	_, m.at = raft.NewInmemTransport(raft.ServerAddress(name))
	for _, other := range others {
		m.at.Connect(other.at.LocalAddr(), other.at)
		other.at.Connect(m.at.LocalAddr(), m.at)
	}
	if exists, err := raft.HasExistingState(store, store, snapshots); err != nil || !exists {
		well(t, err)
		well(t, raft.BootstrapCluster(config, store, store, snapshots, m.at, raft.Configuration{Servers: all}))
	}
	m.raft, err = raft.NewRaft(config, m.sum, store, store, snapshots, m.at)
	well(t, err)
	return m
}

func (m *member) stop(t *testing.T) {
	t.Helper()
	well(t, m.raft.Shutdown().Error())
	well(t, m.store.Close())
}

func leader(t *testing.T, members []*member) *raft.Raft {
	t.Helper()
	for range 2000 {
		for _, m := range members {
			if m.raft.State() == raft.Leader {
				return m.raft
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no leader was elected")
	return nil
}

func agree(t *testing.T, members []*member, want string) {
	t.Helper()
	for range 2000 {
		same := 0
		for _, m := range members {
			if m.sum.is() == want {
				same++
			}
		}
		if same == len(members) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, m := range members {
		t.Errorf("got %s, want %s", m.sum.is(), want)
	}
	t.FailNow()
}

func TestRaftOnTheStores(t *testing.T) {
	path := t.TempDir()
	var all []raft.Server
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, raft.Server{ID: raft.ServerID(name), Address: raft.ServerAddress(name)})
	}
	var members []*member
	for _, server := range all {
		members = append(members, start(t, path, string(server.ID), all, members))
	}
	applied := 0
	apply := func(count int) {
		t.Helper()
		for range count {
			// A leader that was elected a moment ago may lose its office: ask the next one.
			for try := 0; ; try++ {
				err := leader(t, members).Apply(fmt.Appendf(nil, "command %d", applied+1), 5*time.Second).Error()
				if err == nil {
					break
				} else if try == 20 {
					t.Fatal(err)
				}
				time.Sleep(50 * time.Millisecond)
			}
			applied++
		}
	}
	apply(100)
	agree(t, members, "100 command 100")

	// One goes away; the others forget what it lacks.
	away := members[2]
	if away.raft.State() == raft.Leader {
		away, members[1] = members[1], away
	}
	members = members[:2]
	name := string(away.at.LocalAddr())
	away.stop(t)
	for _, m := range members {
		m.at.Disconnect(away.at.LocalAddr())
	}
	apply(200)
	agree(t, members, "300 command 300")
	for _, m := range members {
		well(t, m.raft.Snapshot().Error())
		if first, err := m.store.FirstIndex(); err != nil || first < 290 {
			t.Fatal("the entries begin at", first, err)
		}
	}
	members = append(members, start(t, path, name, all, members))
	agree(t, members, "300 command 300")
	apply(20)
	agree(t, members, "320 command 320")
	// It has got a snapshot, so its entries begin anew.
	if first, err := members[2].store.FirstIndex(); err != nil || first < 290 {
		t.Fatal("the entries begin at", first, err)
	}

	for _, m := range members {
		m.stop(t)
	}
	members = nil
	for _, server := range all {
		members = append(members, start(t, path, string(server.ID), all, members))
	}
	apply(1)
	agree(t, members, "321 command 321")
	for _, m := range members {
		m.stop(t)
	}
}
