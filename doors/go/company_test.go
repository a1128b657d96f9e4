package inkstone

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// Waiters are used again. One whose context has ended must not give its answer to the record of
// another goroutine.
func TestEachGetsTheAnswerForItsOwnRecord(t *testing.T) {
	log := small(t, t.TempDir())
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for range 200 {
				ctx, cancel := context.WithTimeout(background, time.Duration(rand.IntN(300))*time.Microsecond)
				lsn, err := log.AppendDurable(ctx, []byte("record"))
				durable := log.Durable()
				cancel()
				if err == nil && durable < lsn || err != nil && err != context.DeadlineExceeded {
					t.Errorf("%d records are durable, and %d had the answer %v", durable, lsn, err)
					return
				}
			}
		})
	}
	group.Wait()
	must[uint64](t)(log.Sync(background))
	same(t, log.Durable(), log.Last())
}

// The callback releases a waiter whose context has ended.
func TestAWaiterThatWasLeftIsUsedAgain(t *testing.T) {
	log, let := holdCallbacks(t)
	idle.waiters = nil
	log.company.Store(lonely)
	lsn, err := log.AppendDurable(silent{background}, []byte("left"))
	is(t, err, context.Canceled)
	same(t, lsn, 2)
	same(t, len(idle.waiters), 0)
	let()
	well(t, log.Close()) // After every callback.
	same(t, len(idle.waiters), 1)
	same(t, idle.waiters[0].state.Load(), waits)
}

// A program may recover from a panic in its own context. Others must not miss what the call took.
func TestAContextThatPanicsTakesNothing(t *testing.T) {
	log := small(t, t.TempDir())
	panics := func(f func()) {
		defer func() {
			if recover() == nil {
				t.Fatal("no panic")
			}
		}()
		f()
	}
	idle.waiters = nil
	log.company.Store(lonely)
	must[uint64](t)(log.AppendDurable(background, []byte("record")))
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	for _, company := range []int32{0, lonely} {
		for range threads + 1 {
			p := must[*Pending](t)(log.Append([]byte("record")))
			log.company.Store(company)
			panics(func() { p.Wait(strange{background}) })
			well(t, p.Wait(ctx))
			log.company.Store(company)
			panics(func() { log.AppendDurable(strange{background}, []byte("record")) })
			panics(func() { log.Sync(strange{background}) })
		}
	}
	same(t, len(log.gate.slots), 0)
	same(t, log.waiting.Load(), 0)
	well(t, log.Close())
	same(t, len(idle.waiters), 1)
}

// A context of the program that ends without a reason must not look like an answer.
func TestAContextThatEndsWithoutAReason(t *testing.T) {
	log, _ := holdCallbacks(t)
	log.company.Store(lonely)
	lsn, err := log.AppendDurable(silent{background}, []byte("record"))
	is(t, err, context.Canceled)
	same(t, lsn, 2)
	p := must[*Pending](t)(log.Append([]byte("record")))
	log.company.Store(lonely)
	is(t, p.Wait(silent{background}), context.Canceled)
	for range threads {
		log.gate.slots <- struct{}{}
	}
	_, err = log.Sync(silent{background})
	is(t, err, context.Canceled)
	same(t, len(log.gate.slots), threads)
	for range threads {
		<-log.gate.slots
	}
}

type silent struct{ context.Context }

func (silent) Done() <-chan struct{} {
	ended := make(chan struct{})
	close(ended)
	return ended
}

type strange struct{ context.Context }

func (strange) Done() <-chan struct{} { panic("strange") }

func TestNothingIsAllocatedForARecordInCompany(t *testing.T) {
	log := small(t, t.TempDir())
	record := make([]byte, 100)
	allocated := testing.AllocsPerRun(100, func() {
		log.company.Store(lonely)
		must[uint64](t)(log.AppendDurable(background, record))
	})
	same(t, allocated, 0)
}

func TestWaitersAreKeptUpToALimit(t *testing.T) {
	all := make([]*waiter, idleMax+1)
	for i := range all {
		all[i] = newWaiter()
	}
	for _, w := range all {
		w.release()
	}
	same(t, len(idle.waiters), idleMax)
	defer func() {
		if recover() == nil {
			t.Fatal("a handle is left of a waiter that is not kept")
		}
	}()
	all[idleMax].handle.Value()
}

func TestACompanyGetsErrors(t *testing.T) {
	log := small(t, t.TempDir())
	for range 2 {
		log.company.Store(lonely)
		_, err := log.AppendDurable(background, make([]byte, 1<<20))
		is(t, err, ErrTooLarge)
	}
	well(t, log.Close())
	log.company.Store(lonely)
	_, err := log.AppendDurable(background, nil)
	is(t, err, ErrClosed)
}
