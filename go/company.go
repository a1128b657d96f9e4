// AppendDurable where several goroutines wait: one call of C and one callback for a record, and nothing is allocated for it.

package inkstone

// #include "shim.h"
import "C"

import (
	"context"
	"runtime/cgo"
	"sync"
)

// waiter gets the answer for one record, and later for another. It refers to no log, so it keeps none open.
type waiter struct {
	handle cgo.Handle
	answer chan error // With room for the answer: a callback must not block.
}

// idle are waiters that wait for nothing. They are kept, because a handle costs as much as the rest of an append.
var idle struct {
	mu      sync.Mutex
	waiters []*waiter
}

const idleMax = 4096

func newWaiter() *waiter {
	idle.mu.Lock()
	defer idle.mu.Unlock()
	if last := len(idle.waiters) - 1; last >= 0 {
		w := idle.waiters[last]
		idle.waiters = idle.waiters[:last]
		return w
	}
	w := &waiter{answer: make(chan error, 1)}
	w.handle = cgo.NewHandle(w)
	return w
}

// release gives back a waiter that no callback will come for.
func (w *waiter) release() {
	idle.mu.Lock()
	defer idle.mu.Unlock()
	if len(idle.waiters) < idleMax {
		idle.waiters = append(idle.waiters, w)
	} else {
		w.handle.Delete()
	}
}

// appendInCompany is AppendDurable where a callback ends the waiting. ErrBusy: every buffer is full, and nothing was appended.
func (l *Log) appendInCompany(ctx context.Context, data []byte) (lsn uint64, err error) {
	c, err := l.gate.enter()
	if err != nil {
		return 0, err
	}
	w := newWaiter()
	// The callback may come within this call.
	a := C.inkstone_go_try_append_durable(c, bytesOf(data), C.size_t(len(data)), C.uintptr_t(w.handle))
	l.gate.leave()
	lsn = uint64(a.number)
	if err := failed(a); err != nil {
		if a.code != C.INKSTONE_PANICKED { // After a panic the callback may still come.
			w.release()
		}
		return lsn, err
	}
	select {
	case err = <-w.answer: // First, since a context may have ended too.
		w.release()
		return lsn, err
	default:
	}
	select {
	case err = <-w.answer:
		w.release()
		return lsn, err
	case <-ctx.Done():
		go func() { // The next record must not get this answer.
			<-w.answer
			w.release()
		}()
		return lsn, ctx.Err()
	}
}
