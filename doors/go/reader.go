// Reading: by LSN, and in order by a cursor, which can follow a log that grows.

package inkstone

// #include "shim.h"
import "C"

import (
	"context"
	"iter"
	"runtime"
	"sync"
	"unsafe"
)

// Reader reads the durable records of a log. Keep one instead of making one for each read.
//
// Goroutines: any, also several at the same time.
type Reader struct {
	gate    gate[*C.inkstone_reader]
	cleanup runtime.Cleanup
	// log is the Log whose reader this is, so that one that nobody else keeps is not closed; nil for
	// OpenReader.
	log *Log
	// view is for those who follow the log of another process; nil for Log.Reader.
	view *view
}

// Record is a record and its LSN. Its bytes are the caller's.
type Record struct {
	LSN  uint64
	Data []byte
}

// OpenReader opens the log in the directory path for reading only, also beside a writer in another
// process. It writes nothing. Of the options only WithAccess and WithExpectDurable apply. Close it.
// Goroutines: any.
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

// Reader makes a reader of the log. It may be used after the log is closed, until the log is opened
// for writing again. Close it. Goroutines: any.
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
	if log == nil {
		made := C.go_cursor_new(r.reader, 1)
		if err := failed(made.answer); err != nil {
			C.inkstone_reader_free(r.reader)
			return nil, err
		}
		reader.view = newView(made.cursor)
	}
	kept := held[*C.inkstone_reader]{r.reader, reader.view}
	reader.cleanup = runtime.AddCleanup(reader, func(kept held[*C.inkstone_reader]) {
		C.inkstone_reader_free(kept.c)
		kept.view.release()
	}, kept)
	return reader, nil
}

// held is what a reader or cursor must give back, also one that is forgotten.
type held[P any] struct {
	c    P
	view *view
}

// Close frees the reader, when calls that use it have ended. Its cursors may be used on. A second
// call does nothing. Goroutines: any.
func (r *Reader) Close() error {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	if r.gate.c != nil {
		r.cleanup.Stop()
		C.inkstone_reader_free(r.gate.c)
		r.view.release()
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

// First is the first record that is left; one above the last if there is none, 0 when the reader is
// closed. Goroutines: any.
func (r *Reader) First() uint64 {
	return r.number(func(c *C.inkstone_reader) C.uint64_t { return C.inkstone_reader_first(c) })
}

// Durable is the last record that can be read; 0 when there is none, or the reader is closed. A
// reader of OpenReader says what it saw last. Goroutines: any.
func (r *Reader) Durable() uint64 {
	return r.number(func(c *C.inkstone_reader) C.uint64_t { return C.inkstone_reader_durable(c) })
}

// EndOfLog is nil while the log takes records, and for a log of another process; else ErrPoisoned
// or ErrClosed. Durable records can be read all the same. Goroutines: any.
func (r *Reader) EndOfLog() error {
	c, err := r.gate.enter()
	if err != nil {
		return err
	}
	defer r.gate.leave()
	return failed(C.go_end_of_log(c))
}

// Recovery says what OpenReader has found, as a sentence for people; "" for a reader of a Log.
// Goroutines: any.
func (r *Reader) Recovery() (string, error) {
	c, err := r.gate.enter()
	if err != nil {
		return "", err
	}
	defer r.gate.leave()
	return sentence(text(C.go_reader_recovery(c)))
}

// Get is the record with this LSN, in the memory of buf if that is large enough, else in new
// memory; buf may be nil. ErrNotYet, ErrTruncatedBefore. Goroutines: any.
func (r *Reader) Get(lsn uint64, buf []byte) ([]byte, error) {
	if err := r.gate.takeSlot(context.Background()); err != nil {
		return nil, err
	}
	defer r.gate.giveSlot()
	c, err := r.gate.enter()
	if err != nil {
		return nil, err
	}
	defer r.gate.leave()
	got := C.go_get(c, C.uint64_t(lsn))
	if err := failed(got.answer); err != nil {
		return nil, err
	}
	defer C.go_bytes_free(got.bytes)
	return into(buf, got.bytes.data, got.bytes.size), nil
}

// into is C's bytes in the memory of buf if that is large enough, else in new memory; never nil.
func into(buf []byte, data unsafe.Pointer, size C.size_t) []byte {
	if buf == nil {
		buf = make([]byte, 0, int(size))
	}
	return append(buf[:0], unsafe.Slice((*byte)(data), int(size))...)
}

// Records are the durable records from lsn on, each in its own memory, in order, up to the last one
// that is durable when the loop comes to it. An error is the last that the loop gets. Goroutines:
// any.
func (r *Reader) Records(lsn uint64) iter.Seq2[Record, error] {
	return r.loop(lsn, func(c *Cursor) (Record, error) { return c.Next(nil) }, errNotYet)
}

// Follow are the records from lsn on, each in its own memory, in order; it waits for those to come
// as Cursor.Follow does. It ends with an error: the context's, or why no more will come.
// Goroutines: any.
func (r *Reader) Follow(ctx context.Context, lsn uint64) iter.Seq2[Record, error] {
	return r.loop(lsn, func(c *Cursor) (Record, error) { return c.Follow(ctx, nil) }, nil)
}

// loop is the records that next finds, up to its first error, which is told unless it is the end.
func (r *Reader) loop(
	lsn uint64, next func(*Cursor) (Record, error), end error,
) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		cursor, err := r.Cursor(lsn)
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer cursor.Close()
		for {
			record, err := next(cursor)
			if end != nil && err == end || !yield(record, err) || err != nil {
				return
			}
		}
	}
}

// Cursor makes a cursor whose next record is the one with this LSN, which may not exist yet. No
// record has LSN 0. Close it. Goroutines: any.
func (r *Reader) Cursor(lsn uint64) (*Cursor, error) {
	return r.cursor(func(c *C.inkstone_reader) C.go_opened {
		return C.go_cursor_new(c, C.uint64_t(lsn))
	})
}

// From makes a cursor at a place that a cursor of this log had, in this process or in an earlier
// one. If records before the place were cut since, its first call is ErrTruncatedAfter, and the
// next one goes on at the error's LSN. The place of another log is ErrInvalid then. Close it.
// Goroutines: any.
func (r *Reader) From(place Place) (*Cursor, error) {
	return r.cursor(func(c *C.inkstone_reader) C.go_opened {
		return C.go_cursor_from(c, C.uint64_t(place.LSN), C.uint64_t(place.Cuts))
	})
}

func (r *Reader) cursor(begin func(*C.inkstone_reader) C.go_opened) (*Cursor, error) {
	c, err := r.gate.enter()
	if err != nil {
		return nil, err
	}
	defer r.gate.leave()
	made := begin(c)
	if err := failed(made.answer); err != nil {
		return nil, err
	}
	cursor := &Cursor{c: made.cursor, log: r.log, view: r.view.keep(), closed: make(chan struct{})}
	kept := held[*C.inkstone_cursor]{made.cursor, cursor.view}
	cursor.cleanup = runtime.AddCleanup(cursor, func(kept held[*C.inkstone_cursor]) {
		C.inkstone_cursor_free(kept.c)
		kept.view.release()
	}, kept)
	return cursor, nil
}

// Place is where a consumer of a log is. A consumer that stores it with what it has made of the
// records, and begins there after a restart (Reader.From), learns of records that were cut
// meanwhile.
type Place struct {
	// LSN is the next record.
	LSN uint64
	// Cuts is how often TruncateAfter had cut the log when the record before was read.
	Cuts uint64
}

// Cursor reads records in order.
//
// Goroutines: one at a time; another may call Close.
type Cursor struct {
	mu      sync.Mutex
	c       *C.inkstone_cursor
	cleanup runtime.Cleanup
	log     *Log  // As in Reader; nil when the cursor is closed.
	view    *view // As in Reader.
	closed  chan struct{}
}

// Close frees the cursor; a call that waits on it ends with ErrClosed. A second call does nothing.
// Goroutines: any.
func (c *Cursor) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c != nil {
		c.cleanup.Stop()
		C.inkstone_cursor_free(c.c)
		c.view.release()
		c.c, c.log = nil, nil
		close(c.closed)
	}
	return nil
}

// Next is the next record, without waiting for one to be appended; in the memory of buf if that is
// large enough, else in new memory; buf may be nil. ErrNotYet: it is not durable yet.
// ErrTruncatedBefore: Seek to go on. ErrTruncatedAfter and ErrLost: the next call goes on at the
// error's LSN.
func (c *Cursor) Next(buf []byte) (Record, error) { return c.next(buf, false) }

// next is Next, or says that no more will come, where this process knows that.
func (c *Cursor) next(buf []byte, isEndTold bool) (Record, error) {
	if c.view != nil {
		c.view.slots <- struct{}{}
		defer func() { <-c.view.slots }()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var r C.go_read
	switch {
	case c.c == nil:
		return Record{}, errClosed
	case isEndTold && c.view == nil:
		r = C.go_cursor_next_within(c.c, 0)
	default:
		r = C.go_cursor_next(c.c)
	}
	if err := failed(r.answer); err != nil {
		return Record{}, err
	}
	return Record{LSN: uint64(r.record.lsn), Data: into(buf, r.record.data, r.record.size)}, nil
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

// Place is where the cursor is, for Reader.From; zeros when the cursor is closed.
func (c *Cursor) Place() Place {
	c.mu.Lock()
	defer c.mu.Unlock()
	place := C.inkstone_cursor_place(c.c)
	return Place{LSN: uint64(place.lsn), Cuts: uint64(place.cuts)}
}
