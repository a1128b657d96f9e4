// Waiting that does not last: in a log that does not wait, beside buffers that stay full, and for a log that only a reader keeps.

package inkstone

import (
	"context"
	"runtime"
	"sync"
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

// A callback that does not return holds up the thread that commits, so the buffers stay full.
func TestAContextEndsBesideFullBuffers(t *testing.T) {
	log := small(t, t.TempDir(), WithLinger(0))
	slow := must[*Pending](t)(log.Append([]byte("slow")))
	release, isHeld := make(chan struct{}), make(chan struct{})
	go slow.once.Do(func() { // settle, which the callback calls, waits for this.
		close(isHeld)
		<-release
		close(slow.done)
	})
	<-isHeld
	let := sync.OnceFunc(func() { close(release) })
	defer let()
	slow.Done()
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
	same(t, must[Record](t)(cursor.Next()).LSN, 1)
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
