// What an entry, and the state, are as bytes. Integers are little-endian.

package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

const version = 1

// An entry: version 1, type 1, index 8, term 8, time 8 (nanoseconds from 1970; 0: none), size of
// extensions 4; extensions; data.
const entryHead = 30

// encode is a record for each entry, all in one array, so that a batch of them need not be joined.
func encode(logs []*raft.Log) [][]byte {
	size := 0
	for _, log := range logs {
		size += entryHead + len(log.Extensions) + len(log.Data)
	}
	all, records := make([]byte, 0, size), make([][]byte, len(logs))
	for i, log := range logs {
		begin := len(all)
		all = appendEntry(all, log)
		records[i] = all[begin:]
	}
	return records
}

func appendEntry(b []byte, log *raft.Log) []byte {
	b = append(b, version, byte(log.Type))
	b = binary.LittleEndian.AppendUint64(b, log.Index)
	b = binary.LittleEndian.AppendUint64(b, log.Term)
	nanos := uint64(0)
	if !log.AppendedAt.IsZero() {
		nanos = uint64(log.AppendedAt.UnixNano())
	}
	b = binary.LittleEndian.AppendUint64(b, nanos)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(log.Extensions)))
	b = append(b, log.Extensions...)
	return append(b, log.Data...)
}

// decode has the record as the memory of the entry.
func decode(b []byte, index uint64, log *raft.Log) error {
	if len(b) < entryHead || b[0] != version {
		return fmt.Errorf("raftstore: the record of entry %d is none of this version; "+
			"was the log written by another program?", index)
	}
	if got := binary.LittleEndian.Uint64(b[2:]); got != index {
		return fmt.Errorf("raftstore: where entry %d should be is entry %d; "+
			"do entries/ and state/ belong together?", index, got)
	}
	body, extensions := b[entryHead:], uint64(binary.LittleEndian.Uint32(b[26:]))
	if extensions > uint64(len(body)) {
		return fmt.Errorf("raftstore: the record of entry %d is shorter than it says", index)
	}
	*log = raft.Log{Type: raft.LogType(b[1]), Index: index, Term: binary.LittleEndian.Uint64(b[10:])}
	if nanos := binary.LittleEndian.Uint64(b[18:]); nanos != 0 {
		log.AppendedAt = time.Unix(0, int64(nanos))
	}
	if extensions > 0 {
		log.Extensions = body[:extensions:extensions]
	}
	if data := body[extensions:]; len(data) > 0 {
		log.Data = data
	}
	return nil
}

type state struct {
	distance uint64
	keep     uint64 // All records above it were refused; keepAll: none.
	values   map[string][]byte
}

// The version of a state that has `keep`; the one before, `version`, had no such field.
const versionKeep = 2

// A state: version 1, distance 8, keep 8 (not in version 1); then each key and its value, each with
// its size before it, 4. Its size does not depend on keep: a state as large as Set allows must not
// be too large to note what was refused.
func (s state) encode() []byte {
	b := binary.LittleEndian.AppendUint64([]byte{versionKeep}, s.distance)
	b = binary.LittleEndian.AppendUint64(b, s.keep)
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(key)))
		b = append(b, key...)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s.values[key])))
		b = append(b, s.values[key]...)
	}
	return b
}

func decodeState(b []byte) (s state, err error) {
	bad := errors.New("raftstore: the last record of state/ is none of this version; " +
		"was the log written by another program?")
	if len(b) < 9 || (b[0] != version && b[0] != versionKeep) || (b[0] == versionKeep && len(b) < 17) {
		return s, bad
	}
	s = state{distance: binary.LittleEndian.Uint64(b[1:]), keep: keepAll, values: map[string][]byte{}}
	head := 9
	if b[0] == versionKeep {
		s.keep = binary.LittleEndian.Uint64(b[9:])
		head = 17
	}
	b = b[head:]
	sized := func() []byte {
		if len(b) < 4 || uint64(len(b)-4) < uint64(binary.LittleEndian.Uint32(b)) {
			err = bad
			return nil
		}
		end := 4 + int(binary.LittleEndian.Uint32(b))
		part := b[4:end:end]
		b = b[end:]
		return part
	}
	for len(b) > 0 && err == nil {
		key := sized()
		if err == nil {
			s.values[string(key)] = sized()
		}
	}
	return s, err
}
