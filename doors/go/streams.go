// Streams: many sequences in one log, written by this process.

package inkstone

// #include "shim.h"
import "C"

import (
	"context"
	"encoding/json"
	"runtime"
	"unsafe"
)

// Streams is a log with many streams, open for writing. A stream has an id and dense numbers of its
// own, from a first one that its creator chooses. All streams share every flush.
//
// Goroutines: any, also several at the same time.
type Streams struct {
	// log is the log below. Its records are written by the library alone.
	log Log
}

// OpenStreams opens the streams in the directory path, and creates the log if there is none. A log
// of another kind is ErrOtherKind, and stays as it is. Close it. Goroutines: any.
//
// Durable: everything that the opened streams show.
func OpenStreams(path string, options ...Option) (*Streams, error) {
	var streams *Streams
	err := withOptions(options, func(s *settings) error {
		return withText(path, func(p *C.char) error {
			r := C.go_streams_open(p, s.c)
			if err := failed(r.answer); err != nil {
				return err
			}
			streams = &Streams{Log{
				gate:       opened(C.inkstone_streams_log(r.streams)),
				streams:    r.streams,
				isPeriodic: s.isPeriodic,
				tide:       &tide{},
			}}
			// As of a log.
			free := func(c *C.inkstone_streams) { C.inkstone_streams_free(c) }
			streams.log.cleanup = runtime.AddCleanup(streams, free, r.streams)
			return nil
		})
	})
	return streams, err
}

// Close commits everything, ends the calls of other goroutines, and lets another writer open the
// log. A second call returns the same as the first. Readers may be used on. Goroutines: any.
//
// Durable: every change that was applied.
func (s *Streams) Close() error { return s.log.Close() }

// Sync makes all changes durable that were made before. Goroutines: any.
//
// Durable: every change whose call had returned before this one.
func (s *Streams) Sync(ctx context.Context) error {
	_, err := s.log.Sync(ctx)
	return err
}

// Append appends a record to a stream, and returns its number in the stream; its bytes are copied.
// It waits only while the log has no room in its buffers. The LSN of what it returns is that of the
// log's record. ErrNoStream. Goroutines: any.
//
// Durable: nothing on return: call Wait or Done of what it returns, or Sync later.
func (s *Streams) Append(stream uint64, data []byte) (number uint64, p *Pending, err error) {
	err = s.log.gate.slowly(func(*C.inkstone_log) (err error) {
		r := C.go_streams_append(s.log.streams, C.uint64_t(stream), bytesOf(data), C.size_t(len(data)))
		number = uint64(r.answer.number)
		p, err = s.log.appended(r)
		return err
	})
	return number, p, err
}

// AppendDurable appends a record, waits until it is durable, and returns its number in the stream.
// Goroutines that wait together share a flush, whatever their streams. If the context ends first,
// its error comes with the number: the record is there, and durable soon. Goroutines: any.
//
// Durable: the record and all changes before it.
func (s *Streams) AppendDurable(
	ctx context.Context, stream uint64, data []byte,
) (number uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	number, p, err := s.Append(stream, data)
	if err != nil {
		return 0, err
	}
	return number, p.Wait(ctx)
}

// Apply makes all changes of a batch, or none: after a crash, too, all of them are there or none.
// It returns the numbers of the records that the batch appends, in order. A change that cannot be
// made is an error that names its stream, and then nothing has changed. The batch stays as it is.
// Goroutines: any.
//
// Durable: nothing on return: call Wait or Done of what it returns, or Sync later.
func (s *Streams) Apply(batch *Batch) (numbers []uint64, p *Pending, err error) {
	numbers = make([]uint64, batch.records)
	err = s.log.gate.slowly(func(*C.inkstone_log) (err error) {
		p, err = s.log.appended(C.go_streams_apply(s.log.streams, unsafe.SliceData(batch.changes),
			C.size_t(len(batch.changes)), bytesOf(batch.data), (*C.uint64_t)(unsafe.SliceData(numbers))))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return numbers, p, nil
}

// ApplyDurable is Apply, and waits until the changes are durable. Goroutines: any.
//
// Durable: the changes and all before them.
func (s *Streams) ApplyDurable(ctx context.Context, batch *Batch) (numbers []uint64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	numbers, p, err := s.Apply(batch)
	if err != nil {
		return nil, err
	}
	return numbers, p.Wait(ctx)
}

// StreamsStats says how large the streams are, and what was moved since they were opened.
type StreamsStats struct {
	// Streams is how many there are, Sections how many sections the log has.
	Streams  uint64 `json:"streams"`
	Sections uint64 `json:"sections"`
	// LiveBytes is what the records that live take in the log, LogBytes what all records take.
	LiveBytes uint64 `json:"live_bytes"`
	LogBytes  uint64 `json:"log_bytes"`
	// TableBytes is what a table of all streams takes in the log, with their notes.
	TableBytes uint64 `json:"table_bytes"`
	// FrontLiveBytes is what lives in the oldest section: what the front of the log waits for.
	FrontLiveBytes uint64 `json:"front_live_bytes"`
	// MovedRecords is how many records were moved to the end of the log, MovedBytes their bytes.
	MovedRecords uint64 `json:"moved_records"`
	MovedBytes   uint64 `json:"moved_bytes"`
	// LostRecords is how many records could not be read when they were to be moved: they are
	// damaged, and lost.
	LostRecords uint64 `json:"lost_records"`
	// HousekeepingBytes is what was written for directories and for the table of streams.
	HousekeepingBytes uint64 `json:"housekeeping_bytes"`
	// NotMoved is the error for which the front of the log could not be moved or given back when
	// that was tried last; "" if it succeeded. It is tried again with the next change. Records are
	// as safe as before, but the log grows.
	NotMoved string `json:"not_moved"`
}

// Stats says how large the streams are now. Goroutines: any.
func (s *Streams) Stats() (stats StreamsStats, err error) {
	t, err := s.log.text(func(*C.inkstone_log) C.go_read { return C.go_streams_stats(s.log.streams) })
	if err != nil {
		return stats, err
	}
	err = json.Unmarshal([]byte(t), &stats)
	return stats, err
}

// LogStats is what the log below has done since it was opened. Goroutines: any.
func (s *Streams) LogStats() (Stats, error) { return s.log.Stats() }

// Batch is changes of any number of streams, which are made together or not at all, in the order in
// which they were added. The zero Batch is empty. Bytes are copied. A batch that was applied still
// has its changes: to apply it again makes them a second time.
//
// Goroutines: one at a time.
type Batch struct {
	changes []C.go_change
	data    []byte
	records int
}

func (b *Batch) add(kind C.go_kind, stream, number uint64, data []byte) *Batch {
	b.changes = append(b.changes, C.go_change{
		kind: kind, stream: C.uint64_t(stream), number: C.uint64_t(number), size: C.size_t(len(data)),
	})
	b.data = append(b.data, data...)
	return b
}

// Create creates a stream whose first record gets the number first. Applying it may be ErrExists.
func (b *Batch) Create(stream, first uint64) *Batch {
	return b.add(C.GO_CREATE, stream, first, nil)
}

// Append appends a record; it gets the next number of its stream.
func (b *Batch) Append(stream uint64, data []byte) *Batch {
	b.records++
	return b.add(C.GO_APPEND, stream, 0, data)
}

// AppendAt appends a record that must get this number: with any other, applying the batch is
// ErrOtherNumber.
func (b *Batch) AppendAt(stream, number uint64, data []byte) *Batch {
	b.records++
	return b.add(C.GO_APPEND_AT, stream, number, data)
}

// Note replaces the note of a stream: up to 3840 bytes that change in order with its records, such
// as a vote, or a consumer's place. Without bytes the stream has none any more.
func (b *Batch) Note(stream uint64, data []byte) *Batch { return b.add(C.GO_NOTE, stream, 0, data) }

// TruncateBefore truncates the records of a stream before first. If they are gone already, nothing
// changes.
func (b *Batch) TruncateBefore(stream, first uint64) *Batch {
	return b.add(C.GO_TRUNCATE_BEFORE, stream, first, nil)
}

// TruncateAfter truncates the records of a stream after last; the next one gets the number after
// it.
func (b *Batch) TruncateAfter(stream, last uint64) *Batch {
	return b.add(C.GO_TRUNCATE_AFTER, stream, last, nil)
}

// RestartAt truncates all records of a stream; the next one gets the number first, which may be
// any: a snapshot was installed. The note stays.
func (b *Batch) RestartAt(stream, first uint64) *Batch {
	return b.add(C.GO_RESTART_AT, stream, first, nil)
}

// Remove removes a stream with its records and its note. Its id may be created again.
func (b *Batch) Remove(stream uint64) *Batch { return b.add(C.GO_REMOVE, stream, 0, nil) }

// Clear empties the batch, to use its memory again.
func (b *Batch) Clear() *Batch {
	b.changes, b.data, b.records = b.changes[:0], b.data[:0], 0
	return b
}
