// Raft itself on the stores: three nodes, one that is away until it needs a snapshot, a leader that
// is killed, and all opened again.

package raftstore

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
		members := raft.Configuration{Servers: all}
		well(t, raft.BootstrapCluster(config, store, store, snapshots, m.at, members))
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

// servers has the nodes of a cluster.
func servers() (all []raft.Server) {
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, raft.Server{ID: raft.ServerID(name), Address: raft.ServerAddress(name)})
	}
	return all
}

// startAll starts a cluster, the first time or again.
func startAll(t *testing.T, path string) (members []*member) {
	t.Helper()
	for _, server := range servers() {
		members = append(members, start(t, path, string(server.ID), servers(), members))
	}
	return members
}

// apply has these commands applied, by whoever is the leader of these members.
func apply(t *testing.T, members []*member, first, last int) {
	t.Helper()
	for number := first; number <= last; number++ {
		// A leader that was elected a moment ago may lose its office: ask the next one.
		for try := 0; ; try++ {
			err := leader(t, members).Apply(fmt.Appendf(nil, "command %d", number), 5*time.Second).Error()
			if err == nil {
				break
			} else if try == 20 {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func TestRaftOnTheStores(t *testing.T) {
	path := t.TempDir()
	members := startAll(t, path)
	apply(t, members, 1, 100)
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
	apply(t, members, 101, 300)
	agree(t, members, "300 command 300")
	for _, m := range members {
		well(t, m.raft.Snapshot().Error())
		if first, err := m.store.FirstIndex(); err != nil || first < 290 {
			t.Fatal("the entries begin at", first, err)
		}
	}
	members = append(members, start(t, path, name, servers(), members))
	agree(t, members, "300 command 300")
	apply(t, members, 301, 320)
	agree(t, members, "320 command 320")
	// It has got a snapshot, so its entries begin anew.
	if first, err := members[2].store.FirstIndex(); err != nil || first < 290 {
		t.Fatal("the entries begin at", first, err)
	}

	for _, m := range members {
		m.stop(t)
	}
	members = startAll(t, path)
	apply(t, members, 321, 321)
	agree(t, members, "321 command 321")
	for _, m := range members {
		m.stop(t)
	}
}

// kill stops a member and leaves its files as a killed process leaves them: what it did not write
// while it was open is not there.
func (m *member) kill(t *testing.T, place string) {
	t.Helper()
	well(t, m.raft.Shutdown().Error())
	well(t, os.CopyFS(place+".killed", os.DirFS(place)))
	well(t, m.store.Close())
	well(t, os.RemoveAll(place))
	well(t, os.Rename(place+".killed", place))
}

// commands are those of the entries that a closed store has, each with its index and term.
func commands(t *testing.T, place string) (entries, texts []string) {
	t.Helper()
	store, err := Open(place)
	well(t, err)
	first, last, err := store.ends()
	well(t, err)
	for index := first; index <= last; index++ {
		var entry raft.Log
		well(t, store.GetLog(index, &entry))
		if entry.Type != raft.LogCommand {
			continue
		}
		entries = append(entries, fmt.Sprint(entry.Index, " ", entry.Term, " ", string(entry.Data)))
		texts = append(texts, string(entry.Data))
	}
	well(t, store.Close())
	return entries, texts
}

// cutOffWithEntries cuts the leader off, with entries that it has stored and nobody else has; the
// others are left.
func cutOffWithEntries(t *testing.T, members []*member) (old *member, others []*member) {
	t.Helper()
	for range 20 {
		leads := leader(t, members)
		at := slices.IndexFunc(members, func(m *member) bool { return m.raft == leads })
		old, others = members[at], slices.Delete(slices.Clone(members), at, at+1)
		old.at.DisconnectAll()
		for _, m := range others {
			m.at.Disconnect(old.at.LocalAddr())
		}
		lost := leads.Apply([]byte("lost"), 0)
		isStored := func() bool {
			var entry raft.Log
			last, err := old.store.LastIndex()
			well(t, err)
			well(t, old.store.GetLog(last, &entry))
			return string(entry.Data) == "lost"
		}
		for leads.State() == raft.Leader && !isStored() {
			time.Sleep(time.Millisecond)
		}
		// Out of office it stores nothing more once it has refused the command.
		if isStored() || lost.Error() == nil || isStored() {
			return old, others
		}
		for _, m := range others {
			m.at.Connect(old.at.LocalAddr(), old.at)
			old.at.Connect(m.at.LocalAddr(), m.at)
		}
	}
	t.Fatal("no leader stored an entry after it was cut off")
	return nil, nil
}

// The leader stores entries that no other node has, and is killed. The others elect a new one; the
// old one comes back and must take theirs.
func TestALeaderThatIsKilledTakesTheEntriesOfItsSuccessor(t *testing.T) {
	path := t.TempDir()
	members := startAll(t, path)
	apply(t, members, 1, 100)
	agree(t, members, "100 command 100")

	old, members := cutOffWithEntries(t, members)
	name := string(old.at.LocalAddr())
	old.kill(t, filepath.Join(path, name))
	if _, texts := commands(t, filepath.Join(path, name)); texts[len(texts)-1] != "lost" {
		t.Fatal("the killed leader's last entry is", texts[len(texts)-1])
	}

	apply(t, members, 101, 200)
	agree(t, members, "200 command 200")
	members = append(members, start(t, path, name, servers(), members))
	agree(t, members, "200 command 200")
	for _, m := range members {
		m.stop(t)
	}

	// Opened again, the stores of all three have the same 200 entries.
	want, texts := commands(t, filepath.Join(path, "a"))
	is200 := slices.Compact(texts)
	if len(is200) != 200 || is200[0] != "command 1" || is200[199] != "command 200" ||
		slices.Contains(is200, "lost") {
		t.Fatal(len(is200), "commands:", is200)
	}
	for _, name := range []string{"b", "c"} {
		if got, _ := commands(t, filepath.Join(path, name)); !slices.Equal(got, want) {
			t.Fatal(name, "has", got, "and a has", want)
		}
	}

	// And a cluster on them goes on.
	members = startAll(t, path)
	apply(t, members, 201, 201)
	agree(t, members, "201 command 201")
	for _, m := range members {
		m.stop(t)
	}
}
