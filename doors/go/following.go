// Following: how goroutines that wait at the end of a log sleep. It owns who wakes them: for a log
// of this process one callback of the library, for the log of another process one thread. None of
// them has a thread or a timer of its own.

package inkstone

// #include "shim.h"
import "C"

import (
	"context"
	"runtime/cgo"
	"sync"
	"sync/atomic"
	"time"
)

// Follow is the next record; it waits for it until the context ends, which is the context's error.
// ErrClosed and ErrPoisoned: all records were shown, and no more will come. Otherwise as Next.
//
// Waiting costs no thread and nothing while nothing comes. In the log of another process
// (OpenReader) one thread waits for all cursors of a reader, and wakes up once a second; of more
// than 64 such readers 64 wait at a time, in turns of 50 milliseconds.
func (c *Cursor) Follow(ctx context.Context, buf []byte) (Record, error) {
	return following(ctx, c, func() (Record, error) { return c.next(buf, true) })
}

// following calls next until it returns something other than errNotYet. Between the calls it waits
// for a change of the cursor's log.
func following[R any](ctx context.Context, c *Cursor, next func() (R, error)) (R, error) {
	var none R
	if err := ctx.Err(); err != nil {
		return none, err
	}
	record, err := next()
	if err != errNotYet {
		return record, err
	}
	if c.view != nil {
		if !c.keepView() {
			return none, errClosed
		}
		defer c.view.release()
		c.view.followers.Add(1)
		defer c.view.followers.Add(-1)
	}
	ended := ctx.Done() // It is the program's, and may panic.
	for {
		changed, err := c.change()
		if err != nil {
			return none, err
		}
		// What came before that is found by another look.
		if record, err := next(); err != errNotYet {
			return record, err
		}
		select {
		case <-changed:
		case <-ended:
			return none, endOf(ctx)
		case <-c.closed:
			return none, errClosed
		}
	}
}

// keepView makes the caller a user of the view, which another goroutine's Close would free under
// it; false if that has closed the cursor already.
func (c *Cursor) keepView() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c != nil {
		c.view.keep()
	}
	return c.c != nil
}

// change is closed when the log may have more than a look after this call finds.
func (c *Cursor) change() (<-chan struct{}, error) {
	if c.view != nil {
		return c.view.change()
	}
	c.mu.Lock()
	log := c.log
	c.mu.Unlock()
	if log == nil {
		return nil, errClosed
	}
	return log.change()
}

// tide tells all who wait for a change of a log, once. It refers to no log, so it keeps none open.
type tide struct {
	arming sync.Mutex
	// changed is to be closed by somebody who has been asked; nil if nobody has.
	changed atomic.Pointer[chan struct{}]
}

// pass takes no lock: a callback calls it, which may come within the call that asks for it.
func (t *tide) pass() {
	if changed := t.changed.Swap(nil); changed != nil {
		close(*changed)
	}
}

// over is the change of a log that is closed: a look says so.
var over = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (l *Log) change() (<-chan struct{}, error) {
	t := l.tide
	t.arming.Lock()
	defer t.arming.Unlock()
	if changed := t.changed.Load(); changed != nil {
		return *changed, nil
	}
	c, err := l.gate.enter()
	if err != nil {
		return over, nil
	}
	defer l.gate.leave()
	changed, handle := make(chan struct{}), cgo.NewHandle(t)
	t.changed.Store(&changed)
	a := C.inkstone_go_on_watermark(c, C.uintptr_t(handle))
	if a.code != C.INKSTONE_OK && a.code != C.INKSTONE_PANICKED {
		handle.Delete() // Else the callback does, if it comes.
	}
	if err := failed(a); err != nil {
		t.pass()
		return nil, err
	}
	return changed, nil
}

// view is what the reader of another process's log and its cursors share.
type view struct {
	tide
	// c waits for what comes. While a change is due, only watch uses it.
	c *C.inkstone_cursor
	// users are the reader, its cursors, those who follow, and watch while it runs: the last frees c.
	users atomic.Int32
	// followers are the goroutines that wait.
	followers atomic.Int32
	// slots limit the threads of the cursors: all that read a view meet at its lock, when a change
	// wakes them.
	slots chan struct{}
}

func newView(c *C.inkstone_cursor) *view {
	return (&view{c: c, slots: make(chan struct{}, threads)}).keep()
}

// keep adds a user; there is nothing to keep of a log that this process writes.
func (v *view) keep() *view {
	if v != nil {
		v.users.Add(1)
	}
	return v
}

func (v *view) release() {
	if v != nil && v.users.Add(-1) == 0 {
		C.inkstone_cursor_free(v.c)
	}
}

func (v *view) change() (<-chan struct{}, error) {
	v.arming.Lock()
	defer v.arming.Unlock()
	if changed := v.changed.Load(); changed != nil {
		return *changed, nil
	}
	// The caller's next look finds at least what is durable now.
	if next := C.inkstone_cursor_durable(v.c) + 1; next != C.inkstone_cursor_next_lsn(v.c) {
		C.inkstone_cursor_seek(v.c, next)
	}
	changed := make(chan struct{})
	v.changed.Store(&changed)
	go v.keep().watch()
	return changed, nil
}

// How long watch waits in C before it asks whether anybody still follows, and how long when other
// readers wait for their turn.
const (
	watchTime = time.Second
	turnTime  = 50 * time.Millisecond
)

// turns limit the threads of all that watch.
var turns = make(chan struct{}, threads)

// queue is how many want a turn.
var queue atomic.Int32

// watch waits until the log changes, or nobody follows it any more.
func (v *view) watch() {
	defer v.release()
	defer v.pass()
	for v.followers.Load() > 0 {
		r := v.wait()
		switch err := failed(r.answer); {
		case err == errNotYet:
			continue
		case err != nil && r.answer.code != C.INKSTONE_TRUNCATED_AFTER:
			time.Sleep(turnTime) // Those who follow get the error too, or go on; not more often than this.
		}
		return
	}
}

func (v *view) wait() C.go_read {
	queue.Add(1)
	turns <- struct{}{}
	defer func() { <-turns }()
	wait := watchTime
	if queue.Add(-1) > 0 {
		wait = turnTime
	}
	return C.go_cursor_next_within(v.c, C.uint64_t(max(wait, 0)/time.Microsecond))
}
