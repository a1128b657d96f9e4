// Package raftstore has the stores for github.com/hashicorp/raft on Inkstone: one Store is the
// LogStore and the StableStore of one node.
//
// A directory has two logs. In entries/ each record is an entry; raft's index is the record's LSN
// plus a distance. Deleting the first or the last entries truncates the log. In state/ each record
// is the whole state: the keys of the StableStore, and the distance. The distance changes only
// while there is no entry (after a snapshot was restored, say), and is durable before the first
// entry that needs it.
package raftstore

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
	"inkstone.example/inkstone"
)

// How many bytes of entries are appended by one call. What StoreLogs gets is durable together, by
// one flush, whatever its size.
const groupBytes = 1 << 20

// Store is a raft.LogStore, raft.MonotonicLogStore and raft.StableStore. Set and StoreLogs are
// durable when they return.
//
// Goroutines: any, also several at the same time.
type Store struct {
	entries *inkstone.Log
	reader  *inkstone.Reader
	state   *inkstone.Log

	// writing is held by one StoreLogs, DeleteRange or Close at a time, never by a reader.
	writing sync.Mutex
	// keep is the last record to keep: those above it are of a StoreLogs that failed, and could not be
	// removed again (for want of room, say). They are not shown, and later changes try to remove them.
	// The state has it too, for the next opening. keepAll: there are none.
	keep uint64
	// distance is index minus LSN, in wrapping arithmetic.
	distance atomic.Uint64
	// known are the ends, so that asking for them calls no C. Who holds writing changes them.
	known atomic.Pointer[ends]
	// renewed is how often an index may have come to mean another entry: the last ones were deleted,
	// or all are numbered anew.
	renewed atomic.Uint64

	// keys is for values, noted and uncertain.
	keys sync.RWMutex
	// values is never changed, but replaced.
	values map[string][]byte
	// noted is what the state says of keep.
	noted uint64
	// uncertain is why nobody knows what the state says on the disk: then nothing is stored that
	// depends on it, until the store is opened again.
	uncertain error
	isClosed  atomic.Bool
	closing   sync.Once
	closeErr  error
}

// ends are the first and the last index; 0 and 0 if there is no entry.
type ends struct{ first, last uint64 }

const keepAll = math.MaxUint64

var errClosed = fmt.Errorf("raftstore: the store is closed: %w", inkstone.ErrClosed)

// Open opens the stores of one node in the directory path, and creates what is not there. The
// options are those of the log of entries: an entry may have as many bytes as a record
// (inkstone.WithRecordBytesMax). With inkstone.WithPeriodicNotDurableAtOnce it is an error: raft
// needs durable entries. Close it.
func Open(path string, options ...inkstone.Option) (*Store, error) {
	if err := makeDirectory(path, (*os.File).Sync); err != nil {
		return nil, err
	}
	store := &Store{}
	err := store.open(path, options)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

func (s *Store) open(path string, options []inkstone.Option) (err error) {
	// With a segment prepared ahead: a full disk must not keep raft from its vote, nor the store from
	// noting what was refused.
	s.state, err = inkstone.Open(filepath.Join(path, "state"), inkstone.WithSegmentBytes(1<<20),
		inkstone.WithRecordBytesMax(1<<19), inkstone.WithTailBytes(0))
	if err != nil {
		return err
	}
	if err := s.readState(); err != nil {
		return err
	}
	if s.entries, err = inkstone.Open(filepath.Join(path, "entries"), options...); err != nil {
		return err
	}
	if s.entries.IsPeriodic() {
		return errors.New("raftstore: WithPeriodicNotDurableAtOnce is refused: " +
			"raft needs entries that are durable when they are stored")
	}
	if s.reader, err = s.entries.Reader(); err != nil {
		return err
	}
	_ = s.removeRefused() // What an earlier process could not remove.
	s.look()
	return nil
}

// makeDirectory makes a directory that is still there after a power loss. One that is there already
// may be the work of a process that was killed before its sync, so the sync is made in any case.
func makeDirectory(path string, sync func(*os.File) error) error {
	made := os.Mkdir(path, 0o700)
	if made != nil && !errors.Is(made, os.ErrExist) {
		return made
	}
	// The kernel knows the parent, also of a path that ends with a slash, of "." and of a link.
	parent, err := os.Open(path + "/..")
	if made != nil && errors.Is(err, os.ErrPermission) {
		return nil // Who may not read the parent has made nothing there.
	}
	if err != nil {
		return err
	}
	return errors.Join(sync(parent), parent.Close())
}

// Close closes both logs, when a StoreLogs or DeleteRange that is running has ended. Later calls
// get inkstone.ErrClosed. It is an error if entries that were refused can neither be removed nor
// noted: the next opening shows them. A second call returns the same as the first.
func (s *Store) Close() error {
	s.isClosed.Store(true)
	s.closing.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Store) close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	var errs []error
	if s.reader != nil {
		if err := s.removeRefused(); err != nil && !s.isNoted(s.keep) {
			errs = append(errs, fmt.Errorf("raftstore: entries that were refused are there "+
				"when the store is opened again: %w", err))
		}
		errs = append(errs, s.reader.Close())
	}
	for _, log := range []*inkstone.Log{s.entries, s.state} {
		if log != nil {
			errs = append(errs, log.Close())
		}
	}
	return errors.Join(errs...)
}

// IsMonotonic says that entries without a gap are needed: raft then deletes all entries when it has
// restored a snapshot.
func (s *Store) IsMonotonic() bool { return true }

// ends are the first and the last index that can be read; 0 and 0 if there is none.
func (s *Store) ends() (first, last uint64, err error) {
	if s.isClosed.Load() {
		return 0, 0, errClosed
	}
	known := s.known.Load()
	return known.first, known.last, nil
}

// look finds out the ends, after a change or its failure. The caller holds writing.
func (s *Store) look() {
	first, last := s.reader.First(), s.reader.Durable()
	last = min(last, s.keep)
	if first > last {
		s.known.Store(&ends{})
		return
	}
	distance := s.distance.Load()
	s.known.Store(&ends{first + distance, last + distance})
}

// FirstIndex is the first entry; 0 if there is none.
func (s *Store) FirstIndex() (uint64, error) {
	first, _, err := s.ends()
	return first, err
}

// LastIndex is the last entry; 0 if there is none.
func (s *Store) LastIndex() (uint64, error) {
	_, last, err := s.ends()
	return last, err
}

// GetLog reads an entry into log; raft.ErrLogNotFound if there is none with this index.
func (s *Store) GetLog(index uint64, log *raft.Log) error {
	for {
		renewed, distance := s.renewed.Load(), s.distance.Load()
		first, last, err := s.ends()
		if err != nil {
			return err
		}
		if index == 0 || index < first || index > last {
			return raft.ErrLogNotFound
		}
		record, err := s.reader.Get(index-distance, nil)
		if renewed != s.renewed.Load() {
			continue // That may have been another entry.
		}
		switch {
		case errors.Is(err, inkstone.ErrNotYet), errors.Is(err, inkstone.ErrTruncatedBefore),
			errors.Is(err, inkstone.ErrTruncatedAfter):
			return raft.ErrLogNotFound
		case err != nil:
			return err
		}
		return decode(record, index, log)
	}
}

// StoreLog stores an entry. Durable when it returns.
func (s *Store) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs stores entries. Their indexes follow one another, and the last that is there; the first
// of all may have any index above 0. If it fails, none of them is there. If it fails because
// nothing can be written any more, not even the state, some may be there when the store is opened
// again, without a gap; and after a failed write of the state the store takes no entries until
// then.
//
// Durable when it returns: all of them. After a crash before that the first of them may be there,
// without a gap.
func (s *Store) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	for i, log := range logs {
		if log.Index != logs[0].Index+uint64(i) || log.Index == 0 {
			return fmt.Errorf("raftstore: entry %d stands where %d must; "+
				"indexes begin at 1 and have no gap", log.Index, max(logs[0].Index, 1)+uint64(i))
		}
	}
	records := encode(logs)
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.isClosed.Load() {
		return errClosed
	}
	if err := s.isCertain(); err != nil {
		return err
	}
	if err := s.removeRefused(); err != nil {
		return fmt.Errorf("raftstore: entries that were refused before cannot be removed yet: %w", err)
	}
	if err := s.follow(logs[0].Index); err != nil {
		return err
	}
	defer s.look()
	before := s.entries.Last()
	err := s.append(records)
	if err != nil && s.entries.Last() != before {
		s.keep = before
		if refused := s.removeRefused(); !s.isNoted(s.keep) { // Else the next change tries again.
			err = errors.Join(err, refused)
		}
	}
	return err
}

// removeRefused removes what a StoreLogs that failed has left; if that fails, the state says what
// to keep. The caller holds writing, and looks after it.
func (s *Store) removeRefused() (err error) {
	switch {
	case s.keep == keepAll:
		return nil
	case s.keep < s.entries.First():
		// Nothing else is there, and to truncate from the front needs no room.
		err = s.entries.TruncateBefore(s.entries.Last() + 1)
	case s.keep < s.entries.Last():
		err = s.entries.TruncateAfter(s.keep)
	}
	if err != nil {
		return errors.Join(err, s.note(s.keep))
	}
	if err = s.note(keepAll); err == nil {
		s.keep = keepAll
	}
	return err
}

// note has the state say which record is the last to keep, if it does not yet.
func (s *Store) note(keep uint64) error {
	if s.isNoted(keep) {
		return nil
	}
	return s.write(func(state *state) { state.keep = keep })
}

func (s *Store) isNoted(keep uint64) bool {
	s.keys.RLock()
	defer s.keys.RUnlock()
	return s.noted == keep
}

// follow sees to it that the next record gets this index.
func (s *Store) follow(index uint64) error {
	first, last := s.entries.First(), s.entries.Last()
	next := max(last+1, first)
	if index == next+s.distance.Load() {
		return nil
	}
	if first <= last {
		return fmt.Errorf("raftstore: entry %d does not follow the last one, %d; "+
			"delete entries first", index, last+s.distance.Load())
	}
	distance := index - next
	return s.write(func(state *state) { state.distance = distance })
}

// append appends records in groups, and waits for the last.
func (s *Store) append(records [][]byte) error {
	var pending *inkstone.Pending
	for len(records) > 0 {
		count, size := 1, len(records[0])
		for count < len(records) && size+len(records[count]) <= groupBytes {
			size += len(records[count])
			count++
		}
		p, err := s.entries.AppendBatch(records[:count]...)
		for errors.Is(err, inkstone.ErrTooLarge) && count > 1 {
			count /= 2
			p, err = s.entries.AppendBatch(records[:count]...)
		}
		if err != nil {
			return err
		}
		pending, records = p, records[count:]
	}
	return pending.Wait(background)
}

// DeleteRange deletes the entries from low to high, both included, as far as they are there. They
// are the first, the last, or all: entries with others on both sides are refused. To delete the
// last ones, a conflict of raft, takes a new segment of 1 MiB on the disk, until the entries before
// it are deleted too.
//
// Durable when it returns: they do not come back. If a write fails, they may be gone with the next
// opening, or there.
func (s *Store) DeleteRange(low, high uint64) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	first, last, err := s.ends()
	if err != nil || first == 0 || low > high || high < first || low > last {
		return err
	}
	defer s.look()
	distance := s.distance.Load()
	// What goes is not shown any more from here on.
	switch {
	case low <= first && high >= last:
		s.known.Store(&ends{})
		err = s.entries.TruncateBefore(s.entries.Last() + 1) // Refused records above go with them.
	case low <= first:
		s.known.Store(&ends{high + 1, last})
		err = s.entries.TruncateBefore(high + 1 - distance)
	case high >= last:
		s.known.Store(&ends{first, low - 1})
		err = s.entries.TruncateAfter(low - 1 - distance)
		s.renewed.Add(1)
	default:
		return fmt.Errorf("raftstore: entries %d to %d have others on both sides (%d to %d); "+
			"delete the first or the last", low, high, first, last)
	}
	if err == nil {
		_ = s.removeRefused() // There may be room now.
	}
	return err
}
