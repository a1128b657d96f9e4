// What went wrong: codes, which are the sentinels, and the error with its details.

package inkstone

// #include "shim.h"
import "C"

import (
	"io/fs"
	"syscall"
)

// Code says what kind of failure it was. Codes are errors, to be compared by errors.Is. Later
// versions may add some.
type Code int32

// The codes, with the numbers of inkstone.h.
const (
	// ErrIO: the operating system refused a call.
	ErrIO Code = C.INKSTONE_IO
	// ErrLocked: another writer, in this process or another, has the log open.
	ErrLocked Code = C.INKSTONE_LOCKED
	// ErrNoLog: there is no log in the directory, and the call does not create one.
	ErrNoLog Code = C.INKSTONE_NO_LOG
	// ErrIncomplete: the directory holds an unfinished copy, which is not a log yet.
	ErrIncomplete Code = C.INKSTONE_INCOMPLETE
	// ErrStopped: the operation was stopped before it was done.
	ErrStopped Code = C.INKSTONE_STOPPED
	// ErrCorrupt: bytes that were promised to be durable are damaged or missing. No file was changed.
	ErrCorrupt Code = C.INKSTONE_CORRUPT
	// ErrUnknownVersion: a newer program wrote this log.
	ErrUnknownVersion Code = C.INKSTONE_UNKNOWN_VERSION
	// ErrPoisoned: a write or sync failed. Records after the error's LSN may or may not be there:
	// open the log again.
	ErrPoisoned Code = C.INKSTONE_POISONED
	// ErrNoRoom: the disk has no room. Nothing was lost: try again when there is room, or after
	// TruncateBefore.
	ErrNoRoom Code = C.INKSTONE_NO_ROOM
	// ErrTooLarge: the record or batch is larger than the log's limit (WithRecordBytesMax).
	ErrTooLarge Code = C.INKSTONE_TOO_LARGE
	// ErrBusy: a call that must not wait would have had to.
	ErrBusy Code = C.INKSTONE_BUSY
	// ErrTruncatedBefore: TruncateBefore has truncated the record. The error's LSN is the first
	// that is left.
	ErrTruncatedBefore Code = C.INKSTONE_TRUNCATED_BEFORE
	// ErrNotYet: there is no durable record with this LSN yet.
	ErrNotYet Code = C.INKSTONE_NOT_YET
	// ErrTruncatedAfter: records before this cursor were truncated, by TruncateAfter or at the end of
	// a stream. The error's LSN is where it goes on, in a stream its Number.
	ErrTruncatedAfter Code = C.INKSTONE_TRUNCATED_AFTER
	// ErrLost: records are lost, since the log was salvaged without them. The error's LSN is where the
	// cursor goes on, in a stream its Number. With a Path: the last one that is lost, and the log of
	// streams takes no writer.
	ErrLost Code = C.INKSTONE_LOST
	// ErrInvalid: an argument or option makes no sense. Nothing was done.
	ErrInvalid Code = C.INKSTONE_INVALID
	// ErrClosed: the log, reader or cursor is closed.
	ErrClosed Code = C.INKSTONE_CLOSED
	// ErrForked: the process was forked after the log was opened.
	ErrForked Code = C.INKSTONE_FORKED
	// ErrUsedUp: there are no LSNs or segment numbers left.
	ErrUsedUp Code = C.INKSTONE_USED_UP
	// ErrPanicked: a bug of the library. Close the log and open it again.
	ErrPanicked Code = C.INKSTONE_PANICKED
	// ErrOther: a failure that this version has no code for.
	ErrOther Code = C.INKSTONE_OTHER
	// ErrNoStream: there is no stream with this id: it was never created, or was removed.
	ErrNoStream Code = C.INKSTONE_NO_STREAM
	// ErrExists: a stream with this id is there already.
	ErrExists Code = C.INKSTONE_EXISTS
	// ErrOtherNumber: the record does not get the number that the caller expects (Batch.AppendAt),
	// but the error's Number.
	ErrOtherNumber Code = C.INKSTONE_OTHER_NUMBER
	// ErrOtherKind: the log is of another kind than the one that was to be opened: a log with
	// streams, a raft log, a plain one. It was not changed.
	ErrOtherKind Code = C.INKSTONE_OTHER_KIND
	// ErrContradiction: the log has a record that no program of ours writes there: a bug, or damage
	// that the checksums cannot see.
	ErrContradiction Code = C.INKSTONE_CONTRADICTION
)

// Error is the code in words, such as "no room".
func (c Code) Error() string {
	return "inkstone: " + C.GoString(C.inkstone_code_name(C.int32_t(c)))
}

// Is says that ErrClosed is os.ErrClosed too.
func (c Code) Is(target error) bool { return c == ErrClosed && target == fs.ErrClosed }

// Error is a failure with its details. It never changes, so goroutines may share it.
type Error interface {
	// Error says what happened, to what, and what to do.
	Error() string
	// Code is what kind of failure it was.
	Code() Code
	// Advice is what a program or its operator can do about an error of this code.
	Advice() string
	// Path is the file or directory that it is about; "" if there is none.
	Path() string
	// Offset is the byte of the file at which it happened, if there is one.
	Offset() (offset int64, isKnown bool)
	// LSN belongs to the error: the first record that is left (ErrTruncatedBefore), where a cursor
	// goes on (ErrTruncatedAfter, ErrLost), the last durable record (ErrNotYet, ErrPoisoned), the
	// record that should be there (ErrCorrupt).
	LSN() (lsn uint64, isKnown bool)
	// Stream is the id of the stream that it is about, if there is one.
	Stream() (stream uint64, isKnown bool)
	// Number is the number in the stream that belongs to the error: the first record that is left
	// (ErrTruncatedBefore), where to go on (ErrTruncatedAfter), or the one that the next record gets
	// (ErrNotYet, ErrOtherNumber).
	Number() (number uint64, isKnown bool)
	// Errno is the operating system's number; 0 if there is none.
	Errno() syscall.Errno
	// IsRetryable says whether the same call can succeed later, without opening the log again.
	IsRetryable() bool
	ofInkstone()
}

// failure is the one kind of Error. Nothing of it is exported: what several callers share, none can
// change.
type failure struct {
	code                  Code
	message, advice, path string
	offset                int64
	lsn                   uint64
	hasOffset, hasLSN     bool
	stream, number        C.go_number
	errno                 syscall.Errno
	isRetryable           bool
}

func (f *failure) Error() string          { return "inkstone: " + f.message }
func (f *failure) Code() Code             { return f.code }
func (f *failure) Advice() string         { return f.advice }
func (f *failure) Path() string           { return f.path }
func (f *failure) Offset() (int64, bool)  { return f.offset, f.hasOffset }
func (f *failure) LSN() (uint64, bool)    { return f.lsn, f.hasLSN }
func (f *failure) Stream() (uint64, bool) { return uint64(f.stream.value), bool(f.stream.has) }
func (f *failure) Number() (uint64, bool) { return uint64(f.number.value), bool(f.number.has) }
func (f *failure) Errno() syscall.Errno   { return f.errno }
func (f *failure) IsRetryable() bool      { return f.isRetryable }
func (f *failure) ofInkstone()            {}

// Unwrap gives the code, and the operating system's number if there is one.
func (f *failure) Unwrap() []error {
	if f.errno == 0 {
		return []error{f.code}
	}
	return []error{f.code, f.errno}
}

var (
	errNotYet error = &failure{
		code:        ErrNotYet,
		message:     "there is no durable record there yet; read again later, or follow",
		isRetryable: true,
	}
	errClosed error = &failure{code: ErrClosed, message: "it is closed; open it again"}
)

// failed makes an error of an answer, and frees what C holds of it; nil if there was none.
func failed(a C.go_answer) error {
	if a.code == C.INKSTONE_OK {
		return nil
	}
	if a.error == nil {
		if a.code == C.INKSTONE_NOT_YET {
			return errNotYet
		}
		return &failure{code: Code(a.code), message: C.GoString(C.inkstone_code_name(C.int32_t(a.code)))}
	}
	defer C.inkstone_error_free(a.error)
	return errorOf(a.error)
}

// errorOf copies an error that stays the library's.
func errorOf(c *C.inkstone_error) error {
	offset, lsn := C.go_error_offset(c), C.go_error_lsn(c)
	return &failure{
		code:        Code(C.inkstone_error_code(c)),
		message:     C.GoString(C.inkstone_error_message(c)),
		advice:      C.GoString(C.inkstone_error_advice(c)),
		path:        C.GoString(C.inkstone_error_path(c)),
		offset:      int64(offset.value),
		hasOffset:   bool(offset.has),
		lsn:         uint64(lsn.value),
		hasLSN:      bool(lsn.has),
		stream:      C.go_error_stream(c),
		number:      C.go_error_number(c),
		errno:       syscall.Errno(C.inkstone_error_os(c)),
		isRetryable: bool(C.inkstone_error_is_retryable(c)),
	}
}

func invalid(what string) error { return &failure{code: ErrInvalid, message: what} }
