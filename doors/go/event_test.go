// Events.

package inkstone

import (
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestAListenerIsToldInOrderAndMayCallEverything(t *testing.T) {
	path := t.TempDir()
	var log *Log
	opened, heard := make(chan struct{}), make(chan Event, 100)
	log = small(t, path, WithListener(func(event Event) {
		<-opened
		if event.Kind == EventSegmentSealed {
			well(t, log.Close()) // Which would wait for the call that caused the event.
		}
		heard <- event
	}))
	close(opened)
	var err error
	for err == nil {
		_, err = log.AppendDurable(background, make([]byte, 30_000))
	}
	is(t, err, ErrClosed)
	same(t, (<-heard).Kind, EventRecovered)
	event := <-heard
	for event.Kind != EventSegmentSealed {
		event = <-heard
	}
	if !strings.Contains(event.Text, "full: LSN 1 to ") || event.Err != nil || event.Missed != 0 {
		t.Fatalf("%+v", event)
	}
	_, err = Open(path, WithListener(nil))
	is(t, err, ErrInvalid)
}

func TestAListenerHearsOfAPoison(t *testing.T) {
	heard := make(chan Event, 100)
	log := small(t, t.TempDir(), WithListener(func(event Event) { heard <- event }))
	var before syscall.Rlimit
	well(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	well(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 0, Max: before.Max}))
	_, err := log.AppendDurable(background, []byte("lost"))
	well(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before))
	is(t, err, ErrPoisoned)
	for event := range heard {
		if event.Kind == EventPoisoned {
			is(t, event.Err, ErrPoisoned)
			is(t, event.Err, syscall.EFBIG)
			return
		}
	}
}

func TestAListenerThatIsSlowMissesEvents(t *testing.T) {
	var mu sync.Mutex
	var got []Event
	mu.Lock()
	l := &listener{listen: func(event Event) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, event)
	}}
	l.add(Event{Text: "told"})
	for { // Until that one has been taken.
		l.mu.Lock()
		isTaken := len(l.due) == 0
		l.mu.Unlock()
		if isTaken {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for range eventsMax + 7 {
		l.add(Event{Text: "many"})
	}
	mu.Unlock()
	for told := 0; told < eventsMax+1; time.Sleep(time.Millisecond) {
		mu.Lock()
		told = len(got)
		mu.Unlock()
	}
	l.add(Event{Text: "last"})
	for told := 0; told < eventsMax+2; time.Sleep(time.Millisecond) {
		mu.Lock()
		told = len(got)
		mu.Unlock()
	}
	same(t, got[0].Missed, 0)
	same(t, got[eventsMax+1], Event{Text: "last", Missed: 7})
}

// The library says when it needs a listener no more.
func TestAListenerIsForgottenWithItsLog(t *testing.T) {
	forgotten := make(chan struct{})
	func() {
		owner := new([100]byte)
		runtime.AddCleanup(owner, func(struct{}) { close(forgotten) }, struct{}{})
		log := small(t, t.TempDir(), WithListener(func(Event) { owner[0]++ }))
		well(t, log.Close())
	}()
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		select {
		case <-forgotten:
			return
		default:
		}
		if time.Now().After(until) {
			t.Fatal("the listener is kept")
		}
	}
}
