// Waiting that does not last: in a log that does not wait, beside buffers that stay full, and for a
// log that only a reader keeps.

package inkstone

import (
	"context"
	"runtime"
	"runtime/cgo"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestAPeriodicLogDoesNotWait(t *testing.T) {
	log := small(t, t.TempDir(), WithPeriodicNotDurableAtOnce(time.Hour))
	if !log.IsPeriodic() || small(t, t.TempDir()).IsPeriodic() {
		t.Fatal("a log does not know whether it is periodic")
	}
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				_, err := log.AppendDurable(ctx, []byte("record"))
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	// Done is for those who must know.
	p := must[*Pending](t)(log.Append([]byte("last")))
	well(t, p.Wait(ctx))
	select {
	case <-p.Done():
		t.Fatal("a record is durable long before its hour")
	default:
	}
	same(t, must[uint64](t)(log.Sync(ctx)), 801)
	<-p.Done()
	well(t, p.Err())
}

// holdCallbacks opens a log, and holds up the thread that commits and calls back, until `let` is
// called, at the latest when the test ends. The log has one record, which is durable.
func holdCallbacks(t testing.TB) (log *Log, let func()) {
	log = small(t, t.TempDir())
	slow := &waiter{answer: make(chan error)} // Without room.
	slow.handle = cgo.NewHandle(slow)
	must[uint64](t)(log.appendFor(slow, []byte("slow")))
	for slow.state.Load() != answered {
		time.Sleep(time.Millisecond)
	}
	let = sync.OnceFunc(func() { <-slow.answer })
	t.Cleanup(func() {
		let()
		slow.handle.Delete()
	})
	return log, let
}

// A callback that does not return holds up the thread that commits, so the buffers stay full.
func TestAContextEndsBesideFullBuffers(t *testing.T) {
	log, let := holdCallbacks(t)
	for _, size := range []int{30_000, 4} {
		for full := 0; full < 20; { // Full, and not only for a moment.
			_, err := log.TryAppend(make([]byte, size))
			if err == nil {
				full = 0
				continue
			}
			is(t, err, ErrBusy)
			full++
			time.Sleep(2 * time.Millisecond)
		}
	}
	before := log.Last()
	ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	lsn, err := log.AppendDurable(ctx, []byte("late"))
	is(t, err, context.DeadlineExceeded)
	same(t, lsn, 0)
	same(t, log.Last(), before)

	ctx, cancel = context.WithTimeout(background, time.Minute)
	defer cancel()
	time.AfterFunc(10*time.Millisecond, let)
	same(t, must[uint64](t)(log.AppendDurable(ctx, []byte("in time"))), before+1)
}

// Calls that hang in C keep at most the handle's threads, and others no goroutine.
func TestASyncThatGetsNoThreadEndsWithItsContext(t *testing.T) {
	log := small(t, t.TempDir())
	for range threads {
		log.gate.slots <- struct{}{}
	}
	before := runtime.NumGoroutine()
	for range 20 {
		ctx, cancel := context.WithTimeout(background, time.Millisecond)
		_, err := log.Sync(ctx)
		cancel()
		is(t, err, context.DeadlineExceeded)
	}
	// A context that ends has a goroutine of its own for a moment; those of Sync would stay until a
	// thread is free.
	eventually(t, "the goroutines of before alone", func() bool {
		return runtime.NumGoroutine() <= before
	})
	for range threads {
		<-log.gate.slots
	}
}

// What was durable before a failure is durable, also if it is asked for after a Close that failed.
func TestTheAnswerAfterAFailedClose(t *testing.T) {
	log := small(t, t.TempDir())
	durable := must[*Pending](t)(log.Append([]byte("durable")))
	must[uint64](t)(log.Sync(background))
	var before syscall.Rlimit
	well(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	well(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 0, Max: before.Max}))
	lost := must[*Pending](t)(log.Append([]byte("lost")))
	err := log.Close()
	well(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before))
	is(t, err, ErrPoisoned)
	is(t, log.Close(), ErrPoisoned)
	well(t, durable.Wait(background))
	is(t, lost.Wait(background), ErrPoisoned)
}

func TestAReaderAloneKeepsItsLogOpen(t *testing.T) {
	path := t.TempDir()
	cursor, closed := func() (*Cursor, *Reader) {
		log := must[*Log](t)(Open(path))
		must[uint64](t)(log.AppendDurable(background, []byte("record")))
		reader := must[*Reader](t)(log.Reader())
		cursor := must[*Cursor](t)(reader.Cursor(1))
		well(t, reader.Close())
		return cursor, reader
	}()
	for range 5 { // Cleanups run some time after a collection.
		runtime.GC()
		time.Sleep(2 * time.Millisecond)
	}
	_, err := Open(path)
	is(t, err, ErrLocked)
	same(t, must[Record](t)(cursor.Next(nil)).LSN, 1)
	well(t, cursor.Close())
	// And when nothing that is open keeps it, it is closed.
	for err != nil {
		runtime.GC()
		time.Sleep(time.Millisecond)
		var log *Log
		if log, err = Open(path); err == nil {
			well(t, log.Close())
		}
	}
	runtime.KeepAlive(cursor)
	runtime.KeepAlive(closed)
}
