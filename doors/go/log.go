// The log: opening, closing (Log.Close), appending, watermarks, truncation. The gate comes first: a
// gate keeps a handle alive while calls use the handle.

package inkstone

// #cgo pkg-config: inkstone
// #include "shim.h"
import "C"

import (
	"context"
	"encoding/json"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// How many calls of a handle may keep a thread of the operating system at the same time.
const threads = 64

// gate lets calls use a handle, and its closer wait for them. `c` is nil where there is none.
type gate[P comparable] struct {
	mu    sync.RWMutex
	c     P
	slots chan struct{}
}

func opened[P comparable](c P) gate[P] { return gate[P]{c: c, slots: make(chan struct{}, threads)} }

// enter keeps the handle from being freed until leave. No goroutine enters twice: a closer between
// the two would hold up both.
func (g *gate[P]) enter() (P, error) {
	var none P
	g.mu.RLock()
	if g.c == none {
		g.mu.RUnlock()
		return none, errClosed
	}
	return g.c, nil
}

func (g *gate[P]) leave() { g.mu.RUnlock() }

// slowly is f in the gate, for a call that may wait for the disk.
func (g *gate[P]) slowly(f func(P) error) error {
	if err := g.takeSlot(context.Background()); err != nil {
		return err
	}
	return g.inSlot(f)
}

// takeSlot takes one of the handle's threads for a call that may wait for the disk: inSlot.
func (g *gate[P]) takeSlot(ctx context.Context) error {
	if g.slots == nil {
		return errClosed
	}
	select {
	case g.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return endOf(ctx)
	}
}

// inSlot is f in the gate, and gives the thread back.
func (g *gate[P]) inSlot(f func(P) error) error {
	defer g.giveSlot()
	c, err := g.enter()
	if err != nil {
		return err
	}
	defer g.leave()
	return f(c)
}

func (g *gate[P]) giveSlot() { <-g.slots }

// Log is a log that is open for writing.
//
// Goroutines: any, also several at the same time.
type Log struct {
	gate gate[*C.inkstone_log]
	// streams is what the log is below of; nil for a log that stands alone.
	streams    *C.inkstone_streams
	isPeriodic bool
	closing    sync.Mutex
	closeErr   error
	// closedDurable is the durable watermark when the log was closed.
	closedDurable uint64
	isClosed      bool
	cleanup       runtime.Cleanup
	tide          *tide
	// waiting is how many goroutines wait for records, company how many waits must pass before one
	// counts as alone (Log.isAlone).
	waiting, company atomic.Int32
}

// Open opens the log in the directory path, and creates both if they are not there. Close it.
// Goroutines: any.
//
// Durable: everything that the opened log shows.
func Open(path string, options ...Option) (*Log, error) {
	var log *Log
	err := withOptions(options, func(s *settings) error {
		return withText(path, func(p *C.char) error {
			r := C.go_open(p, s.c)
			if err := failed(r.answer); err != nil {
				return err
			}
			log = &Log{gate: opened(r.log), isPeriodic: s.isPeriodic, tide: &tide{}}
			// For a program that forgets to close; what goes wrong then is lost.
			log.cleanup = runtime.AddCleanup(log, func(c *C.inkstone_log) { C.inkstone_log_free(c) }, r.log)
			return nil
		})
	})
	return log, err
}

// Close commits everything, ends the calls of other goroutines, and lets another writer open the
// log. A second call returns the same as the first. The log is closed also when this fails. Readers
// may be used on. Goroutines: any.
//
// Durable: every record that was appended.
func (l *Log) Close() error {
	l.closing.Lock()
	defer l.closing.Unlock()
	if l.isClosed {
		return l.closeErr
	}
	c, err := l.gate.enter()
	if err != nil {
		return err
	}
	err = failed(l.end(c))
	durable := uint64(C.inkstone_durable(c))
	l.gate.leave()

	l.gate.mu.Lock()
	defer l.gate.mu.Unlock()
	l.closeErr, l.closedDurable, l.isClosed = err, durable, true
	l.cleanup.Stop()
	l.free(c)
	l.gate.c = nil
	return err
}

func (l *Log) end(c *C.inkstone_log) C.go_answer {
	if l.streams != nil {
		return C.go_streams_close(l.streams)
	}
	return C.go_close(c)
}

func (l *Log) free(c *C.inkstone_log) {
	if l.streams != nil {
		C.inkstone_streams_free(l.streams)
		return
	}
	C.inkstone_log_free(c)
}

// outcome is what became of a record that was pending when the log was closed: a closing without an
// error made all durable.
func (l *Log) outcome(lsn uint64) error {
	l.gate.mu.RLock()
	defer l.gate.mu.RUnlock()
	if lsn <= l.closedDurable {
		return nil
	}
	return l.closeErr
}

// bytesOf is where the bytes begin, for the time of a call.
func bytesOf(data []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(data)) }

// Append appends one record; its bytes are copied. It waits only while every buffer is full.
// Goroutines: any.
//
// Durable: nothing on return: call Wait or Done of what it returns, or Sync later.
func (l *Log) Append(data []byte) (*Pending, error) {
	p, err := l.TryAppend(data)
	if !isBusy(err) {
		return p, err
	}
	err = l.gate.slowly(func(c *C.inkstone_log) error {
		p, err = l.appended(C.go_append(c, bytesOf(data), C.size_t(len(data))))
		return err
	})
	return p, err
}

func isBusy(err error) bool {
	failure, is := err.(*failure)
	return is && failure.code == ErrBusy
}

// TryAppend appends one record if that needs no waiting; else ErrBusy. Goroutines: any.
//
// Durable: nothing on return, as with Append.
func (l *Log) TryAppend(data []byte) (*Pending, error) {
	c, err := l.gate.enter()
	if err != nil {
		return nil, err
	}
	defer l.gate.leave()
	return l.appended(C.go_try_append(c, bytesOf(data), C.size_t(len(data))))
}

// AppendParts appends one record whose bytes are in several places: the same as Append of the parts
// joined. Goroutines: any.
//
// Durable: nothing on return, as with Append.
func (l *Log) AppendParts(parts ...[]byte) (*Pending, error) {
	if len(parts) == 1 {
		return l.Append(parts[0])
	}
	return l.Append(slices.Concat(parts...))
}

// AppendBatch appends records, all or none: after a crash either all of them are in the log or
// none. A batch has at least one record. It may take as much of the log as the largest record
// (WithRecordBytesMax): each record takes its bytes and 24 more, rounded up to a multiple of 8.
// They are joined first, unless they are one array already, each behind the last. Goroutines: any.
//
// Durable: nothing on return, as with Append.
func (l *Log) AppendBatch(records ...[]byte) (*Pending, error) {
	if len(records) == 0 {
		return nil, invalid("a batch has no record; it needs at least one")
	}
	sizes := make([]C.size_t, len(records))
	for i, record := range records {
		sizes[i] = C.size_t(len(record))
	}
	joined := join(records)
	var p *Pending
	err := l.gate.slowly(func(c *C.inkstone_log) (err error) {
		p, err = l.appended(C.go_append_batch(c, bytesOf(joined), &sizes[0], C.size_t(len(sizes))))
		return err
	})
	return p, err
}

// join is the records behind one another: the array that they are parts of, if they stand in it so,
// else a copy.
func join(records [][]byte) []byte {
	size := 0
	for _, record := range records {
		size += len(record)
	}
	if cap(records[0]) < size {
		return slices.Concat(records...)
	}
	whole, at := records[0][:size], 0
	for _, record := range records {
		if len(record) > 0 && unsafe.SliceData(record) != &whole[at] {
			return slices.Concat(records...)
		}
		at += len(record)
	}
	return whole
}

// AppendUnwaited appends one record that nobody waits for, and returns its LSN. The log commits it
// soon. Goroutines: any.
//
// Durable: nothing on return: the record is when Sync has returned, or Durable has reached its LSN.
func (l *Log) AppendUnwaited(data []byte) (lsn uint64, err error) {
	err = l.gate.slowly(func(c *C.inkstone_log) error {
		a := C.go_append_unwaited(c, bytesOf(data), C.size_t(len(data)))
		lsn = uint64(a.number)
		return failed(a)
	})
	return lsn, err
}

// How long AppendDurable pauses before it asks again for room: the first time, and at most.
const (
	pauseMin = 100 * time.Microsecond
	pauseMax = time.Millisecond
)

// appendWithin is Append that ends with the context; then nothing was appended. A call that waits
// in C could not end, so this one asks again.
func (l *Log) appendWithin(ctx context.Context, data []byte) (*Pending, error) {
	if ctx.Done() == nil {
		return l.Append(data)
	}
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		p, err := l.TryAppend(data)
		if !isBusy(err) {
			return p, err
		}
		select {
		case <-ctx.Done():
			return nil, endOf(ctx)
		case <-time.After(pause):
		}
	}
}

// AppendDurable appends one record, waits until it is durable, and returns its LSN. Goroutines that
// wait together share a flush. If the context ends first, its error comes with the record's LSN:
// the record is in the log, and durable soon; or with 0, if it found every buffer full each time it
// asked: nothing was appended. Goroutines: any.
//
// Durable: the record and all before it; with WithPeriodicNotDurableAtOnce they will be soon.
func (l *Log) AppendDurable(ctx context.Context, data []byte) (lsn uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	isAlone := l.isAlone()
	defer l.waiting.Add(-1)
	if !isAlone && !l.isPeriodic {
		if lsn, err := l.appendInCompany(ctx, data); lsn != 0 || !isBusy(err) {
			return lsn, err
		}
	}
	p, err := l.appendWithin(ctx, data)
	if err != nil {
		return 0, err
	}
	return p.LSN(), p.wait(ctx, isAlone)
}

// Sync makes all records durable that were appended before, and returns the LSN of the last one.
// Goroutines: any.
//
// Durable: every record whose append had returned before this call.
func (l *Log) Sync(ctx context.Context) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	ended := ctx.Done() // It is the program's, and may panic.
	type answer struct {
		lsn uint64
		err error
	}
	if err := l.gate.takeSlot(ctx); err != nil {
		return 0, err
	}
	sync := func() (a answer) {
		a.err = l.gate.inSlot(func(c *C.inkstone_log) error {
			r := C.go_sync(c)
			a.lsn = uint64(r.number)
			return failed(r)
		})
		return a
	}
	if ended == nil {
		a := sync()
		return a.lsn, a.err
	}
	// It ends with the flush, also when nobody waits for it any more.
	done := make(chan answer, 1)
	go func() { done <- sync() }()
	select {
	case a := <-done:
		return a.lsn, a.err
	case <-ended:
		return 0, endOf(ctx)
	}
}

// IsPeriodic says whether the log was opened with WithPeriodicNotDurableAtOnce. A library that
// needs durable records refuses such a log.
func (l *Log) IsPeriodic() bool { return l.isPeriodic }

// number asks for a watermark; 0 when the log is closed.
func (l *Log) number(f func(*C.inkstone_log) C.uint64_t) uint64 {
	c, err := l.gate.enter()
	if err != nil {
		return 0
	}
	defer l.gate.leave()
	return uint64(f(c))
}

// First is the first record that was not truncated; one above Last if there is none, 0 when the log
// is closed. Goroutines: any.
func (l *Log) First() uint64 {
	return l.number(func(c *C.inkstone_log) C.uint64_t { return C.inkstone_first(c) })
}

// Durable is the durable watermark: every record up to it is on stable storage. 0 when there is
// none, or the log is closed. Goroutines: any.
func (l *Log) Durable() uint64 {
	return l.number(func(c *C.inkstone_log) C.uint64_t { return C.inkstone_durable(c) })
}

// Last is the last LSN given to a record, durable or not. 0 when there is none, or the log is
// closed. Goroutines: any.
func (l *Log) Last() uint64 {
	return l.number(func(c *C.inkstone_log) C.uint64_t { return C.inkstone_last(c) })
}

// HeadFirst is the first record of the last segment, or the next one. A program that keeps a
// summary of older records in the log repeats it when this has risen: then TruncateBefore can free
// all segments before it. 0 when the log is closed. Goroutines: any.
func (l *Log) HeadFirst() uint64 {
	return l.number(func(c *C.inkstone_log) C.uint64_t { return C.inkstone_head_first(c) })
}

// TruncateBefore truncates all records before first. Goroutines: any.
//
// Durable: the truncation: those records do not come back.
func (l *Log) TruncateBefore(first uint64) error {
	return l.gate.slowly(func(c *C.inkstone_log) error {
		return failed(C.go_truncate_before(c, C.uint64_t(first)))
	})
}

// TruncateAfter truncates all records after last; the next record gets the LSN after it. The
// truncated records become durable first, so waiting for them succeeds. Cursors after last get
// ErrTruncatedAfter. Each call takes a new segment of 1 MiB, or a full one if that is smaller.
// Goroutines: any.
//
// Durable: the truncation, as a whole: those records do not come back.
func (l *Log) TruncateAfter(last uint64) error {
	return l.gate.slowly(func(c *C.inkstone_log) error {
		return failed(C.go_truncate_after(c, C.uint64_t(last)))
	})
}

// text is a text that C has made, which is freed.
func text(r C.go_read) (string, error) {
	if err := failed(r.answer); err != nil {
		return "", err
	}
	defer C.inkstone_text_free(r.text)
	return C.GoString(r.text), nil
}

func (l *Log) text(f func(*C.inkstone_log) C.go_read) (string, error) {
	c, err := l.gate.enter()
	if err != nil {
		return "", err
	}
	defer l.gate.leave()
	return text(f(c))
}

// Recovery says what the opening found and did, as a sentence for people. Goroutines: any.
func (l *Log) Recovery() (string, error) {
	return sentence(l.text(func(c *C.inkstone_log) C.go_read { return C.go_recovery(c) }))
}

// sentence is the member "text" of a recovery as JSON.
func sentence(found string, err error) (string, error) {
	var recovery struct{ Text string }
	if err == nil {
		err = json.Unmarshal([]byte(found), &recovery)
	}
	return recovery.Text, err
}

// Choice says which way of writing was chosen for this file system and device, and why; warnings
// follow, a line each. Goroutines: any.
func (l *Log) Choice() (string, error) {
	return l.text(func(c *C.inkstone_log) C.go_read { return C.go_choice(c) })
}
