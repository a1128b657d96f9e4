package inkstone

import (
	"context"
	"path/filepath"
	"testing"
)

// Waits whose context ended while a disk hangs keep their threads in C. When the handle has no
// thread left, the library calls back.
func TestAWaitWithoutAThreadIsCalledBack(t *testing.T) {
	log, err := Open(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	pending := func() *Pending {
		p, err := log.Append([]byte("record"))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	one := pending()
	if !one.takesThread() || len(log.gate.slots) != 1 {
		t.Fatalf("one wait has %d threads", len(log.gate.slots))
	}
	if one.takesThread() {
		t.Fatal("a second wait for the same record takes a thread too")
	}
	one.waitInC()
	if len(log.gate.slots) != 0 || one.Err() != nil {
		t.Fatalf("%d threads are kept after the wait (%v)", len(log.gate.slots), one.Err())
	}

	for range threads {
		log.gate.slots <- struct{}{}
	}
	if pending().takesThread() {
		t.Fatal("it takes a thread that the handle does not have")
	}
	log.company.Store(0)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, ctx := range []context.Context{context.Background(), ctx} {
		if err := pending().Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for range threads {
		<-log.gate.slots
	}
}
