// The state: raft's term and vote, the distance, and which entries were refused. Each change
// appends the whole of it, so the last record is all there is to read.

package raftstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"

	"inkstone.example/inkstone"
)

var background = context.Background()

func (s *Store) readState() error {
	now := state{keep: keepAll}
	if last := s.state.Durable(); last >= s.state.First() {
		reader, err := s.state.Reader()
		if err != nil {
			return err
		}
		defer reader.Close()
		record, err := reader.Get(last, nil)
		if err != nil {
			return err
		}
		if now, err = decodeState(record); err != nil {
			return err
		}
	}
	s.distance.Store(now.distance)
	s.values, s.keep, s.noted = now.values, now.keep, now.keep
	return nil
}

// write makes a changed state durable, and only then the one that counts.
func (s *Store) write(change func(*state)) error {
	s.keys.Lock()
	defer s.keys.Unlock()
	next := state{distance: s.distance.Load(), keep: s.noted, values: maps.Clone(s.values)}
	if next.values == nil {
		next.values = map[string][]byte{}
	}
	change(&next)
	lsn, err := s.state.AppendDurable(background, next.encode())
	if err != nil && (lsn != 0 || errors.Is(err, inkstone.ErrPanicked)) {
		// A write or sync failed: the next opening may find this state, or the one before.
		s.uncertain = fmt.Errorf("raftstore: a failed write has left it uncertain what state/ says; "+
			"open the store again: %w", err)
	}
	if err != nil {
		return err
	}
	if s.distance.Swap(next.distance) != next.distance {
		s.renewed.Add(1)
	}
	s.values, s.noted = next.values, next.keep
	// Older states are not needed: whole files of them go when the log has begun a new one. If that
	// fails, the change is there all the same, and the next one tries again.
	if head := min(s.state.HeadFirst(), lsn); head > s.state.First() {
		_ = s.state.TruncateBefore(head)
	}
	return nil
}

// isCertain is nil if the next opening finds the state that the store works with.
func (s *Store) isCertain() error {
	s.keys.RLock()
	defer s.keys.RUnlock()
	return s.uncertain
}

// Set sets a key. The keys and values together may have half a mebibyte; each Set writes all of
// them, as raft has three.
//
// Durable when it returns.
func (s *Store) Set(key, value []byte) error {
	value = bytes.Clone(value)
	return s.write(func(state *state) { state.values[string(key)] = value })
}

// Get is the value of a key; empty if it was never set. The bytes are the caller's.
func (s *Store) Get(key []byte) ([]byte, error) {
	s.keys.RLock()
	defer s.keys.RUnlock()
	if s.isClosed.Load() {
		return nil, errClosed
	}
	return bytes.Clone(s.values[string(key)]), nil
}

// SetUint64 sets a key to a number. Durable when it returns.
func (s *Store) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.LittleEndian.AppendUint64(nil, value))
}

// GetUint64 is the number that SetUint64 has set; 0 if it was never set.
func (s *Store) GetUint64(key []byte) (uint64, error) {
	value, err := s.Get(key)
	if err != nil || len(value) == 0 {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("raftstore: the value of %q is no number: it has %d bytes", key, len(value))
	}
	return binary.LittleEndian.Uint64(value), nil
}
