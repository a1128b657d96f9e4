// A record that was appended and may not be durable yet: one answer, once, to all who ask.

package inkstone

// #include "shim.h"
import "C"

import (
	"context"
	"runtime/cgo"
	"sync"
)

// Pending is a record, or a batch, that was appended and is not necessarily durable yet. Call Wait
// or Done of it, or Sync of the log. One that is forgotten becomes durable with the next record
// that somebody waits for, at the latest when the log is closed.
//
// Goroutines: any, also several at the same time.
type Pending struct {
	log *Log
	c   C.inkstone_pending

	mu   sync.Mutex
	done chan struct{} // nil until somebody asks.
	once sync.Once
	err  error // Written before done is closed, read after.
}

func (l *Log) appended(r C.go_appended) (*Pending, error) {
	if err := failed(r.answer); err != nil {
		return nil, err
	}
	return &Pending{log: l, c: r.pending}, nil
}

// FirstLSN is the LSN of the record; for a batch, that of its first record.
func (p *Pending) FirstLSN() uint64 { return uint64(p.c.first_lsn) }

// LSN is the LSN of the record; for a batch, that of its last record.
func (p *Pending) LSN() uint64 { return uint64(p.c.lsn) }

// Done is closed when the record is durable, or when it is known that it may never be: then Err
// says which. It counts as waiting: the log commits the record soon.
func (p *Pending) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done != nil {
		return p.done
	}
	p.done = make(chan struct{})
	if _, err := p.log.gate.enter(); err != nil {
		p.settle(p.log.outcome(p.LSN()))
		return p.done
	}
	defer p.log.gate.leave()
	handle := cgo.NewHandle(p)
	// The callback may come within this call; it takes no lock.
	a := C.inkstone_go_on_durable(p.c, C.uintptr_t(handle))
	if a.code != C.INKSTONE_OK && a.code != C.INKSTONE_PANICKED {
		handle.Delete() // Else the callback does, if it comes.
	}
	if err := failed(a); err != nil {
		p.settle(err)
	}
	return p.done
}

// Err is nil while Done is open, and when the record and all before it are durable; else why they
// may not be.
func (p *Pending) Err() error {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	select {
	case <-done: // A nil channel is never ready.
		return p.err
	default:
		return nil
	}
}

// Wait waits until the record is durable. A context that ends ends the waiting alone. It may be
// called again, and gives the same answer. In a log with WithPeriodicNotDurableAtOnce it does not
// wait: use Done to learn when the record is durable.
//
// Durable: the record and all before it; with WithPeriodicNotDurableAtOnce they will be soon.
func (p *Pending) Wait(ctx context.Context) error {
	isAlone := p.log.isAlone()
	defer p.log.waiting.Add(-1)
	return p.wait(ctx, isAlone)
}

func (p *Pending) wait(ctx context.Context, isAlone bool) error {
	if p.log.isPeriodic {
		return p.accepted()
	}
	ended := ctx.Done() // It is the program's, and may panic.
	if isAlone && p.takesThread() {
		if ended == nil {
			p.waitInC()
		} else {
			go p.waitInC() // It ends with the flush, also when nobody waits for it any more.
		}
	}
	done := p.Done()
	select {
	case <-done:
		return p.err
	default:
	}
	select {
	case <-done:
		return p.err
	case <-ended:
		return endOf(ctx)
	}
}

// endOf is why a context has ended; never nil, whatever a program's own context says.
func endOf(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return context.Canceled
}

// accepted is what C says of a record of a periodic log, at once.
func (p *Pending) accepted() error {
	if _, err := p.log.gate.enter(); err != nil {
		return p.log.outcome(p.LSN())
	}
	defer p.log.gate.leave()
	return failed(C.go_wait(p.c))
}

// How many waits in a row must have been alone before one counts as alone.
const lonely = 64

// isAlone counts a goroutine that waits, and says whether it has been the only one for a while. One
// that is alone waits on a thread in C, which writes the group itself and has nobody to wake. Where
// several wait, the library calls back: a thread in C keeps a processor of Go's scheduler, which
// takes that back only after a while. 64 goroutines that each waited in C had a quarter of the rate
// of 64 threads of C (docs/results.md).
func (l *Log) isAlone() bool {
	if l.waiting.Add(1) > 1 {
		l.company.Store(lonely)
		return false
	}
	if left := l.company.Load(); left > 0 {
		l.company.Store(left - 1) // Exactly how many is not important.
		return false
	}
	return true
}

// takesThread says whether the caller shall wait in C, for which it then has one of the handle's
// threads: if nobody has asked for this answer yet, and a thread is left. Waits whose context ended
// keep theirs while a disk hangs, so without a limit each would add one.
func (p *Pending) takesThread() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done != nil {
		return false
	}
	select {
	case p.log.gate.slots <- struct{}{}:
	default:
		return false
	}
	p.done = make(chan struct{})
	return true
}

// waitInC waits on this thread, which may write the group itself, and gives the thread back.
func (p *Pending) waitInC() {
	defer func() { <-p.log.gate.slots }()
	if _, err := p.log.gate.enter(); err != nil {
		p.settle(p.log.outcome(p.LSN()))
		return
	}
	defer p.log.gate.leave()
	p.settle(failed(C.go_wait(p.c)))
}

func (p *Pending) settle(err error) {
	p.once.Do(func() {
		p.err = err
		close(p.done)
	})
}

// inkstoneGoDurable is called by the library, on its thread or a waiter's. It must not block.
//
//export inkstoneGoDurable
func inkstoneGoDurable(number C.uintptr_t, e *C.inkstone_error) {
	handle := cgo.Handle(number)
	var err error
	if e != nil {
		err = errorOf(e)
	}
	switch to := handle.Value().(type) {
	case *waiter:
		to.settle(err)
	case *tide:
		handle.Delete()
		to.pass()
	case *Pending:
		handle.Delete()
		to.settle(err)
	}
}
