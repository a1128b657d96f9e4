// The options of a log: each has a name, as the C library's options have.

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

// WithSegmentBytes sets the size of a segment's file: from 64 KiB to 4 GiB, a multiple of 4096. It
// is 64 MiB by default.
func WithSegmentBytes(n uint64) Option { return set("segment_bytes", n) }

// WithRecordBytesMax sets the size of the largest record and batch: 16 MiB by default. It must fit
// in a segment.
func WithRecordBytesMax(n uint64) Option { return set("record_bytes_max", n) }

// WithBufferBytes sets the size of each of the two buffers that gather records: 1 MiB by default.
func WithBufferBytes(n uint64) Option { return set("buffer_bytes", n) }

// WithTailBytes sets how many bytes of memory keep what was written last for this process's
// readers: 4 MiB by default.
func WithTailBytes(n uint64) Option { return set("tail_bytes", n) }

// WithSectionBytes sets, for OpenStreams, how many bytes of the log share one directory: 64 MiB by
// default; best the size of a segment.
func WithSectionBytes(n uint64) Option { return set("section_bytes", n) }

// WithSizeMultiple sets, for OpenStreams, by how much the log may be larger than what lives in it,
// before records in its oldest section are moved: 2 by default.
func WithSizeMultiple(n uint32) Option { return set("size_multiple", n) }

// WithCacheBytes sets, for OpenStreams and OpenStreamsReader, how many bytes of directories of
// older sections are kept in memory: 16 MiB by default.
func WithCacheBytes(n uint64) Option { return set("cache_bytes", n) }

// WithoutCreate creates no log where there is none, nor a directory: ErrNoLog.
func WithoutCreate() Option { return set("create", false) }

// WithExpectDurable says that everything up to lsn was acknowledged as durable: if the log ends
// earlier, or is not there, opening fails and changes no segment.
func WithExpectDurable(lsn uint64) Option { return set("expect_durable", lsn) }

// WithBeginAt sets the LSN of the first record of a new log, 1 by default. An existing log goes on
// after its last record.
func WithBeginAt(lsn uint64) Option { return set("begin_at", lsn) }

// WithPadGroups gives each commit blocks of 4096 bytes of its own, for devices that may harm bytes
// that do not change.
func WithPadGroups() Option { return set("pad_groups", true) }

// WithCreateParents creates missing directories above the log's own too. Without it that is
// ErrNoLog, since a file system may not be mounted there.
func WithCreateParents() Option { return set("create_parents", true) }

// WithFreeSegmentsMax sets how many files of obsolete segments are kept so that their blocks can be
// used again.
func WithFreeSegmentsMax(n uint64) Option { return set("free_segments_max", n) }

// WithDiskBudgetBytes sets how many bytes of the disk all files of the log may use. An append
// beyond it gets ErrNoRoom.
func WithDiskBudgetBytes(n uint64) Option { return set("disk_budget_bytes", n) }

// WithPeriodicNotDurableAtOnce has every append count as acknowledged when it returns, and waiting
// does not wait. A power loss or a killed process can lose the records of the last maxAge. What is
// left is still a prefix. Log.Sync makes durable all the same.
func WithPeriodicNotDurableAtOnce(maxAge time.Duration) Option {
	return func(s *settings) error {
		s.isPeriodic = true
		return set("periodic_us", max(maxAge, 0).Microseconds())(s)
	}
}

// WithFileMode sets the permissions of the files that the log creates: 0600 by default. The umask
// clears bits as usual.
func WithFileMode(mode uint32) Option { return set("file_mode", fmt.Sprintf("%o", mode)) }

// WithPreparation sets how the blocks of a new segment are prepared: "zeros" or "fallocate".
func WithPreparation(name string) Option { return set("preparation", name) }

// WithAccess sets how files are read and written: "buffered" or "direct".
func WithAccess(name string) Option { return set("access", name) }

// WithDurability sets the call that makes a commit durable: "fdatasync", "fsync", "rwf-dsync",
// "o-dsync" or "o-sync". All are equally durable.
func WithDurability(name string) Option { return set("durability", name) }

// set gives the option with this name a value, in the words that fmt has for it.
func set(name string, value any) Option {
	return func(s *settings) error {
		return withText(name, func(n *C.char) error {
			return withText(fmt.Sprint(value), func(v *C.char) error {
				return failed(C.go_options_set(s.c, n, v))
			})
		})
	}
}

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
