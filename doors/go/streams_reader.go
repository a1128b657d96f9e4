// Reading streams: by number, in order, and following one as it grows.

package inkstone

// #include "shim.h"
import "C"

import (
	"context"
	"iter"
	"runtime"
)

// StreamsReader reads the durable records of streams.
//
// Goroutines: any, also several at the same time.
type StreamsReader struct {
	gate    gate[*C.inkstone_streams_reader]
	cleanup runtime.Cleanup
	// log is a reader of the log below, whose changes who follows waits for.
	log *Reader
}

// StreamRecord is a record of a stream and its number. Its bytes are the caller's.
type StreamRecord struct {
	Number uint64
	Data   []byte
}

// OpenStreamsReader opens the streams in the directory path for reading only, also beside a writer
// in another process. It writes nothing. Of the options only WithAccess, WithExpectDurable and
// WithCacheBytes apply. Close it. Goroutines: any.
//
// Durable: everything that the reader shows.
func OpenStreamsReader(path string, options ...Option) (*StreamsReader, error) {
	log, err := OpenReader(path, options...)
	if err != nil {
		return nil, err
	}
	var reader *StreamsReader
	err = withOptions(options, func(s *settings) error {
		return withText(path, func(p *C.char) (err error) {
			reader, err = streamsReaderOf(C.go_streams_reader_open(p, s.c), log)
			return err
		})
	})
	return reader, err
}

// Reader makes a reader of the streams. It may be used after they are closed, until they are opened
// for writing again. Close it. Goroutines: any.
func (s *Streams) Reader() (*StreamsReader, error) {
	log, err := s.log.Reader()
	if err != nil {
		return nil, err
	}
	if _, err := s.log.gate.enter(); err != nil {
		log.Close()
		return nil, err
	}
	defer s.log.gate.leave()
	return streamsReaderOf(C.go_streams_reader_of(s.log.streams), log)
}

func streamsReaderOf(r C.go_opened, log *Reader) (*StreamsReader, error) {
	if err := failed(r.answer); err != nil {
		log.Close()
		return nil, err
	}
	reader := &StreamsReader{gate: opened(r.streams_reader), log: log}
	free := func(c *C.inkstone_streams_reader) { C.inkstone_streams_reader_free(c) }
	reader.cleanup = runtime.AddCleanup(reader, free, r.streams_reader)
	return reader, nil
}

// Close frees the reader, when calls that use it have ended. Loops over records go on. A second
// call does nothing. Goroutines: any.
func (r *StreamsReader) Close() error {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	if r.gate.c != nil {
		r.cleanup.Stop()
		C.inkstone_streams_reader_free(r.gate.c)
		r.gate.c = nil
		r.log.Close()
	}
	return nil
}

// Bounds is the number of the first record of a stream that is left, and the number that the next
// one gets. If both are the same, the stream has no record. In the process that writes, records
// below next may not be durable yet. Goroutines: any.
func (r *StreamsReader) Bounds(stream uint64) (first, next uint64, err error) {
	err = r.gate.slowly(func(c *C.inkstone_streams_reader) error {
		found := C.go_streams_bounds(c, C.uint64_t(stream))
		first, next = uint64(found.first), uint64(found.next)
		return failed(found.answer)
	})
	return first, next, err
}

// Note is the note of a stream; empty if it has none. In the process that writes, it may not be
// durable yet. Goroutines: any.
func (r *StreamsReader) Note(stream uint64) ([]byte, error) {
	return r.found(nil, func(c *C.inkstone_streams_reader) C.go_read {
		return C.go_streams_note(c, C.uint64_t(stream))
	})
}

// Get is the record of a stream with this number, in the memory of buf if that is large enough,
// else in new memory; buf may be nil. ErrNoStream, ErrNotYet, ErrTruncatedBefore. Goroutines: any.
func (r *StreamsReader) Get(stream, number uint64, buf []byte) ([]byte, error) {
	return r.found(buf, func(c *C.inkstone_streams_reader) C.go_read {
		return C.go_streams_get(c, C.uint64_t(stream), C.uint64_t(number))
	})
}

func (r *StreamsReader) found(
	buf []byte, find func(*C.inkstone_streams_reader) C.go_read,
) (data []byte, err error) {
	err = r.gate.slowly(func(c *C.inkstone_streams_reader) error {
		got := find(c)
		if err := failed(got.answer); err != nil {
			return err
		}
		defer C.go_bytes_free(got.bytes)
		data = into(buf, got.bytes.data, got.bytes.size)
		return nil
	})
	return data, err
}

// IDs are the ids of all streams, in order. An error is the last that the loop gets. Goroutines:
// any.
func (r *StreamsReader) IDs() iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		for from := uint64(0); ; {
			var found C.go_ids
			err := r.gate.slowly(func(c *C.inkstone_streams_reader) error {
				found = C.go_streams_ids(c, C.uint64_t(from))
				return failed(found.answer)
			})
			if err != nil {
				yield(0, err)
				return
			}
			for _, id := range found.ids[:found.count] {
				if !yield(uint64(id), nil) {
					return
				}
				from = uint64(id) + 1
			}
			if int(found.count) < len(found.ids) || from == 0 { // 0: behind the largest id.
				return
			}
		}
	}
}

// Records are the durable records of a stream from a number on, each in its own memory, in order,
// up to the last one that is durable when the loop comes to it. An error is the last that the loop
// gets. Goroutines: any.
func (r *StreamsReader) Records(stream, from uint64) iter.Seq2[StreamRecord, error] {
	return r.loop(stream, from, func(c *streamCursor) (StreamRecord, error) {
		return c.next(false)
	}, errNotYet)
}

// Follow are the records of a stream from a number on, each in its own memory, in order; it waits
// for those to come as Cursor.Follow does. It ends with an error: the context's, ErrTruncatedBefore
// or ErrTruncatedAfter (go on at the error's Number), ErrNoStream, or why no more will come.
// Goroutines: any.
func (r *StreamsReader) Follow(
	ctx context.Context, stream, from uint64,
) iter.Seq2[StreamRecord, error] {
	return r.loop(stream, from, func(c *streamCursor) (StreamRecord, error) {
		return following(ctx, c.log, func() (StreamRecord, error) { return c.next(true) })
	}, nil)
}

// streamCursor reads the records of a stream for one loop.
type streamCursor struct {
	c *C.inkstone_streams_cursor
	// log is a cursor of the log below: what changes there may be a record of the stream.
	log   *Cursor
	slots chan struct{}
}

// loop is the records that next finds, up to its first error, which is told unless it is the end.
func (r *StreamsReader) loop(
	stream, from uint64, next func(*streamCursor) (StreamRecord, error), end error,
) iter.Seq2[StreamRecord, error] {
	return func(yield func(StreamRecord, error) bool) {
		cursor, err := r.cursor(stream, from)
		if err != nil {
			yield(StreamRecord{}, err)
			return
		}
		defer cursor.close()
		for {
			record, err := next(cursor)
			if end != nil && err == end || !yield(record, err) || err != nil {
				return
			}
		}
	}
}

func (r *StreamsReader) cursor(stream, from uint64) (*streamCursor, error) {
	c, err := r.gate.enter()
	if err != nil {
		return nil, err
	}
	defer r.gate.leave()
	log, err := r.log.Cursor(1)
	if err != nil {
		return nil, err
	}
	made := C.go_streams_cursor_new(c, C.uint64_t(stream), C.uint64_t(from))
	if err := failed(made.answer); err != nil {
		log.Close()
		return nil, err
	}
	return &streamCursor{c: made.streams_cursor, log: log, slots: r.gate.slots}, nil
}

func (c *streamCursor) close() {
	C.inkstone_streams_cursor_free(c.c)
	c.log.Close()
}

func (c *streamCursor) next(isEndTold bool) (StreamRecord, error) {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	var found C.go_found
	if isEndTold {
		found = C.go_streams_cursor_follow(c.c)
	} else {
		found = C.go_streams_cursor_next(c.c)
	}
	if err := failed(found.answer); err != nil {
		return StreamRecord{}, err
	}
	data := into(nil, found.record.data, found.record.size)
	return StreamRecord{Number: uint64(found.record.number), Data: data}, nil
}
