// A record that was appended and may not be durable yet: one answer, which comes once, to all who ask.

package inkstone

// #include "shim.h"
import "C"

import (
	"context"
	"runtime/cgo"
	"sync"
)

// Pending is a record, or a batch, that was appended and is not necessarily durable yet. Call Wait or Done of it, or Sync of the log. One
// that is forgotten becomes durable with the next record that somebody waits for, at the latest when the log is closed.
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

// Done is closed when the record is durable, or when it is known that it may never be: then Err says which. It counts as
// waiting: the log commits the record soon.
func (p *Pending) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done != nil {
		return p.done
	}
	p.done = make(chan struct{})
	if _, err := p.log.gate.enter(); err != nil {
		p.settle(p.log.outcome())
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

// Err is nil while Done is open, and when the record and all before it are durable; else why they may not be.
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

// Wait waits until the record is durable. A context that ends ends the waiting alone. It may be called again, and gives the same answer.
//
// Durable: the record and all before it; with WithPeriodicNotDurableAtOnce they will be soon.
func (p *Pending) Wait(ctx context.Context) error {
	if ctx.Done() == nil {
		p.waitHere()
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
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitHere waits on this thread, which may then write the group itself, if nobody else has asked and not too many threads wait.
func (p *Pending) waitHere() {
	p.mu.Lock()
	if p.done != nil {
		p.mu.Unlock()
		return
	}
	select {
	case p.log.gate.slots <- struct{}{}:
	default:
		p.mu.Unlock()
		return
	}
	p.done = make(chan struct{})
	p.mu.Unlock()
	defer func() { <-p.log.gate.slots }()
	if _, err := p.log.gate.enter(); err != nil {
		p.settle(p.log.outcome())
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

// inkstoneGoDurable is called by the library, on a thread of its own or of a waiter. It must not block.
//
//export inkstoneGoDurable
func inkstoneGoDurable(number C.uintptr_t, e *C.inkstone_error) {
	handle := cgo.Handle(number)
	p := handle.Value().(*Pending)
	handle.Delete()
	if e == nil {
		p.settle(nil)
	} else {
		p.settle(errorOf(e))
	}
}
