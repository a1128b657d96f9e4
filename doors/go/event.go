// What happens in a log, told to a function of the program's.

package inkstone

// #include "shim.h"
import "C"

import (
	"runtime/cgo"
	"sync"
)

// EventKind says what happened. Later versions may add kinds.
type EventKind int32

// The kinds, with the numbers of inkstone.h.
const (
	// EventOther: a kind that this version has no name for.
	EventOther EventKind = C.INKSTONE_EVENT_OTHER
	// EventRecovered: the log was opened.
	EventRecovered EventKind = C.INKSTONE_EVENT_RECOVERED
	// EventFallback: something is not available or not safe here, and the log does something else
	// instead.
	EventFallback EventKind = C.INKSTONE_EVENT_FALLBACK
	// EventSegmentSealed: a segment is full and durable.
	EventSegmentSealed EventKind = C.INKSTONE_EVENT_SEGMENT_SEALED
	// EventPoolEmpty: a change of the segment found no prepared file and used something else.
	EventPoolEmpty EventKind = C.INKSTONE_EVENT_POOL_EMPTY
	// EventPreparationFailed: the log could not prepare a file in the background; it tries again.
	EventPreparationFailed EventKind = C.INKSTONE_EVENT_PREPARATION_FAILED
	// EventSlowCommit: a commit took a second or longer.
	EventSlowCommit EventKind = C.INKSTONE_EVENT_SLOW_COMMIT
	// EventPoisoned: a write or sync failed, and the log is poisoned: Event.Err.
	EventPoisoned EventKind = C.INKSTONE_EVENT_POISONED
)

// Event is something that happened in a log.
type Event struct {
	Kind EventKind
	// Text says what happened, for people.
	Text string
	// Err is the error of EventPoisoned; nil for other kinds.
	Err error
	// Missed is how many events before this one were not told, because the listener was slow.
	Missed int
}

// How many events wait for a listener before those that come are missed.
const eventsMax = 1024

// WithListener has listen called for every event of the log: one at a time, in order, on a
// goroutine that is there only for that time. It may call everything, Close too, and may block:
// events wait for it, 1024 at most. The last of them may come after Close has returned.
func WithListener(listen func(Event)) Option {
	return func(s *settings) error {
		if listen == nil {
			return invalid("the listener is nil")
		}
		handle := cgo.NewHandle(&listener{listen: listen})
		return failed(C.go_answer{code: C.inkstone_go_set_listener(s.c, C.uintptr_t(handle))})
	}
}

// listener hands events over to a goroutine: the library tells them in the middle of its calls,
// where the program's own would hold up commits, and a goroutine that closes the log.
type listener struct {
	listen func(Event)

	mu        sync.Mutex
	due       []Event
	missed    int
	isTelling bool
}

func (l *listener) add(event Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.due) == eventsMax {
		l.missed++
		return
	}
	event.Missed, l.missed = l.missed, 0
	l.due = append(l.due, event)
	if !l.isTelling {
		l.isTelling = true
		go l.tell()
	}
}

func (l *listener) tell() {
	for {
		l.mu.Lock()
		l.isTelling = len(l.due) > 0
		if !l.isTelling {
			l.mu.Unlock()
			return
		}
		event := l.due[0]
		l.due = l.due[1:]
		l.mu.Unlock()
		l.listen(event)
	}
}

// inkstoneGoEvent is called by the library, on any thread. It must not block.
//
//export inkstoneGoEvent
func inkstoneGoEvent(number C.uintptr_t, e *C.inkstone_event) {
	event := Event{
		Kind: EventKind(C.inkstone_event_get_kind(e)),
		Text: C.GoString(C.inkstone_event_text(e)),
	}
	if why := C.inkstone_event_error(e); why != nil {
		event.Err = errorOf(why)
	}
	cgo.Handle(number).Value().(*listener).add(event)
}

// inkstoneGoForget is called by the library when no event will come any more.
//
//export inkstoneGoForget
func inkstoneGoForget(number C.uintptr_t) { cgo.Handle(number).Delete() }
