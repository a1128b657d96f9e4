// AppendDurable where several goroutines wait: one call of C and one callback for a record, and
// nothing is allocated for it.

package inkstone

// #include "shim.h"
import "C"

import (
	"context"
	"runtime/cgo"
	"sync"
	"sync/atomic"
)

// waiter gets the answer for one record, and later for another. It refers to no log, so it keeps
// none open.
type waiter struct {
	handle cgo.Handle
	answer chan error // With room for the answer: a callback must not block.
	state  atomic.Int32
}

// A waiter waits, or has its answer, or its context has ended first: then the callback releases it.
const (
	waits = iota
	answered
	left
)

// settle gives the answer, once. Callbacks call it.
func (w *waiter) settle(err error) {
	switch {
	case w.state.CompareAndSwap(waits, answered):
		w.answer <- err
	case w.state.Load() == left:
		w.release()
	default:
		panic("inkstone: a waiter gets a second answer")
	}
}

// idle are waiters that wait for nothing. They are kept, because a handle costs as much as the rest
// of an append.
var idle struct {
	mu      sync.Mutex
	waiters []*waiter
}

const idleMax = 4096

func newWaiter() *waiter {
	if w := idleWaiter(); w != nil {
		return w
	}
	w := &waiter{answer: make(chan error, 1)}
	w.handle = cgo.NewHandle(w)
	return w
}

func idleWaiter() *waiter {
	idle.mu.Lock()
	defer idle.mu.Unlock()
	last := len(idle.waiters) - 1
	if last < 0 {
		return nil
	}
	w := idle.waiters[last]
	idle.waiters = idle.waiters[:last]
	return w
}

// release gives back a waiter that no callback will come for.
func (w *waiter) release() {
	w.state.Store(waits)
	idle.mu.Lock()
	isKept := len(idle.waiters) < idleMax
	if isKept {
		idle.waiters = append(idle.waiters, w)
	}
	idle.mu.Unlock()
	if !isKept {
		w.handle.Delete()
	}
}

// appendInCompany is AppendDurable where a callback ends the waiting. ErrBusy: every buffer is
// full, and nothing was appended.
func (l *Log) appendInCompany(ctx context.Context, data []byte) (lsn uint64, err error) {
	ended := ctx.Done() // It is the program's, and may panic.
	w := newWaiter()
	lsn, err = l.appendFor(w, data)
	if err != nil {
		return lsn, err
	}
	select {
	case err = <-w.answer:
	case <-ended:
		if w.state.CompareAndSwap(waits, left) {
			return lsn, endOf(ctx)
		}
		err = <-w.answer // It has come.
	}
	w.release()
	return lsn, err
}

// appendFor appends a record for a waiter, whose callback may come within this call. If it fails,
// the waiter has been given back.
func (l *Log) appendFor(w *waiter, data []byte) (lsn uint64, err error) {
	c, err := l.gate.enter()
	if err != nil {
		w.release()
		return 0, err
	}
	a := C.inkstone_go_try_append_durable(c, bytesOf(data), C.size_t(len(data)), C.uintptr_t(w.handle))
	l.gate.leave()
	err = failed(a)
	if err != nil && a.code != C.INKSTONE_PANICKED { // After a panic the callback may still come.
		w.release()
	}
	return uint64(a.number), err
}
