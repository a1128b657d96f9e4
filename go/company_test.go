package inkstone

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// Waiters are used again. One whose context has ended must not give its answer to the record of another goroutine.
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
