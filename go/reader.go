// Reading: by LSN, and in order by a cursor, which can follow a log that grows.

package inkstone

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// How long a cursor waits in C before it looks at its context again.
const slice = 50 * time.Millisecond

// Reader reads the durable records of a log. Keep one instead of making one for each read.
//
// Goroutines: any, also several at the same time.
type Reader struct {
	gate    gate[*C.inkstone_reader]
	cleanup runtime.Cleanup
	// log is the Log whose reader this is, so that one that nobody else keeps is not closed; nil for OpenReader.
	log *Log
}

// Record is a record and its LSN. Its bytes are the caller's.
type Record struct {
	LSN  uint64
	Data []byte
}

// OpenReader opens the log in the directory path for reading only, also beside a writer in another process. It writes nothing. Of the
// options only WithAccess and WithExpectDurable apply. Close it. Goroutines: any.
//
// Durable: everything that the reader shows.
func OpenReader(path string, options ...Option) (*Reader, error) {
	var reader *Reader
	err := withOptions(options, func(s *settings) error {
		return withText(path, func(p *C.char) (err error) {
			reader, err = readerOf(C.go_reader_open(p, s.c), nil)
			return err
		})
	})
	return reader, err
}

// Reader makes a reader of the log. It may be used after the log is closed, until the log is opened for writing again. Close it. Goroutines: any.
func (l *Log) Reader() (*Reader, error) {
	c, err := l.gate.enter()
	if err != nil {
		return nil, err
	}
	defer l.gate.leave()
	return readerOf(C.go_reader_of(c), l)
}

func readerOf(r C.go_opened, log *Log) (*Reader, error) {
	if err := failed(r.answer); err != nil {
		return nil, err
	}
	reader := &Reader{gate: opened(r.reader), log: log}
	reader.cleanup = runtime.AddCleanup(reader, func(c *C.inkstone_reader) { C.inkstone_reader_free(c) }, r.reader)
	return reader, nil
}

// Close frees the reader, when calls that use it have ended. Its cursors may be used on. A second call does nothing. Goroutines: any.
func (r *Reader) Close() error {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	if r.gate.c != nil {
		r.cleanup.Stop()
		C.inkstone_reader_free(r.gate.c)
		r.gate.c, r.log = nil, nil
	}
	return nil
}

func (r *Reader) number(f func(*C.inkstone_reader) C.uint64_t) uint64 {
	c, err := r.gate.enter()
	if err != nil {
		return 0
	}
	defer r.gate.leave()
	return uint64(f(c))
}

// First is the first record that is left; one above the last if there is none, 0 when the reader is closed. Goroutines: any.
func (r *Reader) First() uint64 {
	return r.number(func(c *C.inkstone_reader) C.uint64_t { return C.inkstone_reader_first(c) })
}

// Durable is the last record that can be read; 0 when there is none, or the reader is closed. A reader of OpenReader says what it saw last. Goroutines: any.
func (r *Reader) Durable() uint64 {
	return r.number(func(c *C.inkstone_reader) C.uint64_t { return C.inkstone_reader_durable(c) })
}

// EndOfLog is nil while the log takes records, and for a log of another process; else ErrPoisoned or ErrClosed. Durable records can be
// read all the same. Goroutines: any.
func (r *Reader) EndOfLog() error {
	c, err := r.gate.enter()
	if err != nil {
		return err
	}
	defer r.gate.leave()
	return failed(C.go_end_of_log(c))
}

// Recovery says what OpenReader has found, as a sentence for people; "" for a reader of a Log. Goroutines: any.
func (r *Reader) Recovery() (string, error) {
	c, err := r.gate.enter()
	if err != nil {
		return "", err
	}
	defer r.gate.leave()
	return text(C.go_reader_recovery(c))
}

// Get is the record with this LSN; its bytes are the caller's. ErrNotYet, ErrTruncatedBefore. Goroutines: any.
func (r *Reader) Get(lsn uint64) (data []byte, err error) {
	err = r.gate.slowly(func(c *C.inkstone_reader) error {
		got := C.go_get(c, C.uint64_t(lsn))
		if err := failed(got.answer); err != nil {
			return err
		}
		defer C.go_bytes_free(got.bytes)
		data = copied(got.bytes.data, got.bytes.size)
		return nil
	})
	return data, err
}

// copied is C's bytes in Go's memory; never nil.
func copied(data unsafe.Pointer, size C.size_t) []byte {
	return append(make([]byte, 0, int(size)), unsafe.Slice((*byte)(data), int(size))...)
}

// Cursor makes a cursor whose next record is the one with this LSN, which may not exist yet. No record has LSN 0. Close it. Goroutines: any.
func (r *Reader) Cursor(lsn uint64) (*Cursor, error) {
	c, err := r.gate.enter()
	if err != nil {
		return nil, err
	}
	defer r.gate.leave()
	made := C.go_cursor_new(c, C.uint64_t(lsn))
	if err := failed(made.answer); err != nil {
		return nil, err
	}
	cursor := &Cursor{c: made.cursor, log: r.log}
	cursor.cleanup = runtime.AddCleanup(cursor, func(c *C.inkstone_cursor) { C.inkstone_cursor_free(c) }, made.cursor)
	return cursor, nil
}

// Cursor reads records in order.
//
// Goroutines: one at a time; another may call Close.
type Cursor struct {
	mu      sync.Mutex
	c       *C.inkstone_cursor
	cleanup runtime.Cleanup
	log     *Log // As in Reader.
}

// Close frees the cursor; a call that waits on it ends soon with ErrClosed. A second call does nothing. Goroutines: any.
func (c *Cursor) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c != nil {
		c.cleanup.Stop()
		C.inkstone_cursor_free(c.c)
		c.c, c.log = nil, nil
	}
	return nil
}

// Next is the next record, without waiting for one to be appended. ErrNotYet: it is not durable yet. ErrTruncatedBefore: Seek to go on.
// ErrTruncatedAfter: the next call goes on at Error.LSN.
func (c *Cursor) Next() (Record, error) { return c.next(0) }

// Follow is the next record; it waits for it until the context ends, which is the context's error. ErrClosed and ErrPoisoned: all records
// were shown, and no more will come. Otherwise as Next.
func (c *Cursor) Follow(ctx context.Context) (Record, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Record{}, err
		}
		wait := slice
		if deadline, has := ctx.Deadline(); has {
			wait = max(min(wait, time.Until(deadline)), time.Microsecond)
		}
		record, err := c.next(wait)
		if err != error(errNotYet) {
			return record, err
		}
	}
}

func (c *Cursor) next(wait time.Duration) (Record, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c == nil {
		return Record{}, errClosed
	}
	r := C.go_cursor_next(c.c, micros(wait))
	if err := failed(r.answer); err != nil {
		return Record{}, err
	}
	return Record{LSN: uint64(r.record.lsn), Data: copied(r.record.data, r.record.size)}, nil
}

// Seek moves to another LSN.
func (c *Cursor) Seek(lsn uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c == nil {
		return errClosed
	}
	return failed(C.go_answer{code: C.inkstone_cursor_seek(c.c, C.uint64_t(lsn))})
}

// NextLSN is the LSN of the record that comes next; 0 when the cursor is closed.
func (c *Cursor) NextLSN() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint64(C.inkstone_cursor_next_lsn(c.c))
}
