// The options of a log: each is a setter of the C library, or a name of its setter by name.

package inkstone

// #include "shim.h"
import "C"

import (
	"fmt"
	"strings"
	"time"
	"unsafe"
)

// Option changes how a log is opened. Without any the log is durable and fits most uses.
type Option func(*settings) error

type settings struct {
	c          *C.inkstone_options
	isPeriodic bool
}

func set(f func(*C.inkstone_options) C.inkstone_code) Option {
	return func(s *settings) error { return failed(C.go_answer{code: f(s.c)}) }
}

// WithSegmentBytes sets the size of a segment's file: from 64 KiB to 4 GiB, a multiple of 4096. It
// is 64 MiB by default.
func WithSegmentBytes(n uint64) Option {
	return set(func(o *C.inkstone_options) C.inkstone_code {
		return C.inkstone_options_set_segment_bytes(o, C.uint64_t(n))
	})
}

// WithRecordBytesMax sets the size of the largest record and batch: 16 MiB by default. It must fit
// in a segment.
func WithRecordBytesMax(n uint64) Option {
	return set(func(o *C.inkstone_options) C.inkstone_code {
		return C.inkstone_options_set_record_bytes_max(o, C.size_t(n))
	})
}

// WithBufferBytes sets the size of each of the two buffers that gather records: 1 MiB by default.
func WithBufferBytes(n uint64) Option { return setText("buffer_bytes", fmt.Sprint(n)) }

// WithTailBytes sets how many bytes of memory keep what was written last for this process's
// readers: 4 MiB by default.
func WithTailBytes(n uint64) Option { return setText("tail_bytes", fmt.Sprint(n)) }

// WithSectionBytes sets, for OpenStreams, how many bytes of the log share one directory: 64 MiB by
// default; best the size of a segment.
func WithSectionBytes(n uint64) Option { return setText("section_bytes", fmt.Sprint(n)) }

// WithSizeMultiple sets, for OpenStreams, by how much the log may be larger than what lives in it,
// before records in its oldest section are moved: 2 by default.
func WithSizeMultiple(n uint32) Option { return setText("size_multiple", fmt.Sprint(n)) }

// WithCacheBytes sets, for OpenStreams and OpenStreamsReader, how many bytes of directories of
// older sections are kept in memory: 16 MiB by default.
func WithCacheBytes(n uint64) Option { return setText("cache_bytes", fmt.Sprint(n)) }

// WithoutCreate refuses a directory without a log: ErrNoLog.
func WithoutCreate() Option {
	return set(func(o *C.inkstone_options) C.inkstone_code {
		return C.inkstone_options_set_create(o, false)
	})
}

// WithExpectDurable says that everything up to lsn was acknowledged as durable: if the log ends
// earlier, opening fails and changes nothing.
func WithExpectDurable(lsn uint64) Option {
	return set(func(o *C.inkstone_options) C.inkstone_code {
		return C.inkstone_options_set_expect_durable(o, C.uint64_t(lsn))
	})
}

// WithBeginAt sets the LSN of the first record of a new log, 1 by default. An existing log goes on
// after its last record.
func WithBeginAt(lsn uint64) Option {
	return set(func(o *C.inkstone_options) C.inkstone_code {
		return C.inkstone_options_set_begin_at(o, C.uint64_t(lsn))
	})
}

// WithPadGroups gives each commit blocks of 4096 bytes of its own, for devices that may harm bytes
// that do not change.
func WithPadGroups() Option { return setText("pad_groups", "true") }

// WithLinger sets how long records that nobody waits for are gathered before they are committed:
// 200 microseconds by default.
func WithLinger(d time.Duration) Option { return setText("linger_us", fmt.Sprint(micros(d))) }

// WithIdle sets how long the log must have been idle before it writes a promise of what is durable:
// 100 milliseconds by default.
func WithIdle(d time.Duration) Option { return setText("idle_us", fmt.Sprint(micros(d))) }

// WithFreeSegmentsMax sets how many files of obsolete segments are kept so that their blocks can be
// used again.
func WithFreeSegmentsMax(n uint64) Option { return setText("free_segments_max", fmt.Sprint(n)) }

// WithoutPrepareAhead has no thread prepare segments before they are needed.
func WithoutPrepareAhead() Option { return setText("prepare_ahead", "false") }

// WithDiskBudgetBytes sets how many bytes of the disk all files of the log may use. An append
// beyond it gets ErrNoRoom.
func WithDiskBudgetBytes(n uint64) Option {
	return set(func(o *C.inkstone_options) C.inkstone_code {
		return C.inkstone_options_set_disk_budget_bytes(o, C.uint64_t(n))
	})
}

// WithPeriodicNotDurableAtOnce has every append count as acknowledged when it returns, and waiting
// does not wait. A power loss or a killed process can lose the records of the last maxAge. What is
// left is still a prefix. Log.Sync makes durable all the same.
func WithPeriodicNotDurableAtOnce(maxAge time.Duration) Option {
	return func(s *settings) error {
		s.isPeriodic = true
		return failed(C.go_answer{code: C.inkstone_options_set_periodic_us(s.c, micros(maxAge))})
	}
}

// WithFileMode sets the permissions of the files that the log creates: 0600 by default. The umask
// clears bits as usual.
func WithFileMode(mode uint32) Option {
	return set(func(o *C.inkstone_options) C.inkstone_code {
		return C.inkstone_options_set_file_mode(o, C.uint32_t(mode))
	})
}

// WithPreparation sets how the blocks of a new segment are prepared: "zeros" or "fallocate".
func WithPreparation(name string) Option { return setText("preparation", name) }

// WithAccess sets how files are read and written: "buffered" or "direct".
func WithAccess(name string) Option { return setText("access", name) }

// WithDurability sets the call that makes a commit durable: "fdatasync", "fsync", "rwf-dsync",
// "o-dsync" or "o-sync". All are equally durable.
func WithDurability(name string) Option { return setText("durability", name) }

func setText(name, value string) Option {
	return func(s *settings) error {
		return withText(name, func(n *C.char) error {
			return withText(value, func(v *C.char) error { return failed(C.go_options_set(s.c, n, v)) })
		})
	}
}

func micros(d time.Duration) C.uint64_t { return C.uint64_t(max(d, 0) / time.Microsecond) }

// withOptions calls f with options that are freed after.
func withOptions(options []Option, f func(*settings) error) error {
	s := &settings{c: C.inkstone_options_new()}
	defer C.inkstone_options_free(s.c)
	for _, option := range options {
		if err := option(s); err != nil {
			return err
		}
	}
	return f(s)
}

// withText calls f with a copy of text in C's memory.
func withText(text string, f func(*C.char) error) error {
	if strings.IndexByte(text, 0) >= 0 {
		return invalid("a path or name has a zero byte")
	}
	c := C.CString(text)
	defer C.free(unsafe.Pointer(c))
	return f(c)
}
