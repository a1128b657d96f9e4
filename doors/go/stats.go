// What a log has done since it was opened, in numbers.

package inkstone

// #include "shim.h"
import "C"

import (
	"encoding/json"
	"time"
)

// Stats is what a log has done since it was opened. The last three numbers are of now, all others
// only rise.
type Stats struct {
	// Records is how many records were appended, RecordBytes how many bytes they had.
	Records     uint64 `json:"records"`
	RecordBytes uint64 `json:"record_bytes"`
	// Groups is how many groups were made durable, control groups included, GroupBytes the bytes
	// written for them: whole blocks.
	Groups     uint64 `json:"groups"`
	GroupBytes uint64 `json:"group_bytes"`
	// Waiters of these groups: divided by Groups, how many share a flush.
	Waiters uint64 `json:"waiters"`
	// Segments is how many segments were begun: in the blocks of an old one, in new blocks that
	// were written before, in blocks that were only reserved.
	Segments           uint64 `json:"segments"`
	SegmentsRecycled   uint64 `json:"segments_recycled"`
	SegmentsPrepared   uint64 `json:"segments_prepared"`
	SegmentsFallocated uint64 `json:"segments_fallocated"`
	// PoolEmpty is how many changes of the segment found no prepared file, PreparedBytes the bytes
	// written to prepare files.
	PoolEmpty     uint64 `json:"pool_empty"`
	PreparedBytes uint64 `json:"prepared_bytes"`
	// Waits is how many appends waited for room in a buffer, or for a segment.
	Waits uint64 `json:"waits"`
	// MissedWakeups is how many waiters no thread woke: more than 0 shows a bug of the log.
	MissedWakeups uint64 `json:"missed_wakeups"`
	// SleepsAtOnce is how often a thread slept at once, since yielding first did not pay, and
	// RestedUs for how many microseconds it did not.
	SleepsAtOnce uint64 `json:"sleeps_at_once"`
	RestedUs     uint64 `json:"rested_us"`
	// Queue is the time from a group's first record until its write began, Write and Sync the time
	// of each of these (Write has both where they are one call), Commit that of both, Change the
	// time to change to the next segment.
	Queue  Times `json:"queue"`
	Write  Times `json:"write"`
	Sync   Times `json:"sync"`
	Commit Times `json:"commit"`
	Change Times `json:"change"`
	// Ready is how many prepared files wait to become segments, Free how many files of obsolete
	// segments are kept for their blocks, TailBytes how many bytes of memory keep what was written
	// last for readers (WithTailBytes).
	Ready     uint64 `json:"ready"`
	Free      uint64 `json:"free"`
	TailBytes uint64 `json:"tail_bytes"`
}

// Times says how long something took: how often it was done, how long all of it took, and what
// half, 99% and 99.9% of the times did not exceed, to two digits.
type Times struct {
	Count                    uint64
	Sum, P50, P99, P999, Max time.Duration
}

// UnmarshalJSON takes what the C library says.
func (t *Times) UnmarshalJSON(b []byte) error {
	var us struct {
		Count uint64 `json:"count"`
		Sum   int64  `json:"sum_us"`
		P50   int64  `json:"p50_us"`
		P99   int64  `json:"p99_us"`
		P999  int64  `json:"p999_us"`
		Max   int64  `json:"max_us"`
	}
	if err := json.Unmarshal(b, &us); err != nil {
		return err
	}
	in := func(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
	t.Count, t.Sum, t.Max = us.Count, in(us.Sum), in(us.Max)
	t.P50, t.P99, t.P999 = in(us.P50), in(us.P99), in(us.P999)
	return nil
}

// Stats is what the log has done since it was opened. Goroutines: any.
func (l *Log) Stats() (stats Stats, err error) {
	t, err := l.statsText()
	if err != nil {
		return stats, err
	}
	err = json.Unmarshal([]byte(t), &stats)
	return stats, err
}

func (l *Log) statsText() (string, error) {
	return l.text(func(c *C.inkstone_log) C.go_read { return C.go_stats(c) })
}
