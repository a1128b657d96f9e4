// What went wrong: codes, which are the sentinels, and the error with its details.

package inkstone

// #include "shim.h"
import "C"

import "syscall"

// Code says what kind of failure it was. Codes are errors, to be compared by errors.Is. Later versions may add some.
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
	// ErrPoisoned: a write or sync failed. Records after Error.LSN may or may not be there: open the log again.
	ErrPoisoned Code = C.INKSTONE_POISONED
	// ErrNoRoom: the disk has no room. Nothing was lost: try again when there is room, or after TruncateBefore.
	ErrNoRoom Code = C.INKSTONE_NO_ROOM
	// ErrTooLarge: the record or batch is larger than the log's limit (WithRecordBytesMax).
	ErrTooLarge Code = C.INKSTONE_TOO_LARGE
	// ErrBusy: a call that must not wait would have had to.
	ErrBusy Code = C.INKSTONE_BUSY
	// ErrTruncatedBefore: TruncateBefore has truncated the record. Error.LSN is the first that is left.
	ErrTruncatedBefore Code = C.INKSTONE_TRUNCATED_BEFORE
	// ErrNotYet: there is no durable record with this LSN yet.
	ErrNotYet Code = C.INKSTONE_NOT_YET
	// ErrTruncatedAfter: TruncateAfter has truncated records before this cursor. Error.LSN is where it goes on.
	ErrTruncatedAfter Code = C.INKSTONE_TRUNCATED_AFTER
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
)

// Error is the code in words, such as "no room".
func (c Code) Error() string { return "inkstone: " + C.GoString(C.inkstone_code_name(C.int32_t(c))) }

// Error is a failure with its details. It never changes.
type Error struct {
	// Code is what kind of failure it was.
	Code Code
	// Message says what happened, to what, and what to do.
	Message string
	// Advice is what a program or its operator can do about an error of this code.
	Advice string
	// Path is the file or directory that it is about; "" if there is none.
	Path string
	// Offset is the byte of the file at which it happened; -1 if there is none.
	Offset int64
	// LSN belongs to the error: the first record that is left (ErrTruncatedBefore), where a cursor goes on (ErrTruncatedAfter), the last
	// durable record (ErrNotYet, ErrPoisoned), the record that should be there (ErrCorrupt). HasLSN says whether it is known.
	LSN    uint64
	HasLSN bool
	// Errno is the operating system's number; 0 if there is none.
	Errno syscall.Errno
	// IsRetryable says whether the same call can succeed later, without opening the log again.
	IsRetryable bool
}

// Error says what happened, to what, and what to do.
func (e *Error) Error() string { return "inkstone: " + e.Message }

// Unwrap gives the code, and the operating system's number if there is one.
func (e *Error) Unwrap() []error {
	if e.Errno == 0 {
		return []error{e.Code}
	}
	return []error{e.Code, e.Errno}
}

var (
	errNotYet = &Error{Code: ErrNotYet, Message: "there is no durable record there yet; read again later, or follow", Offset: -1, IsRetryable: true}
	errClosed = &Error{Code: ErrClosed, Message: "it is closed; open it again", Offset: -1}
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
		c := Code(a.code)
		return &Error{Code: c, Message: C.GoString(C.inkstone_code_name(C.int32_t(a.code))), Offset: -1}
	}
	defer C.inkstone_error_free(a.error)
	return errorOf(a.error)
}

// errorOf copies an error that stays the library's.
func errorOf(c *C.inkstone_error) *Error {
	e := &Error{
		Code:        Code(C.inkstone_error_code(c)),
		Message:     C.GoString(C.inkstone_error_message(c)),
		Advice:      C.GoString(C.inkstone_error_advice(c)),
		Path:        C.GoString(C.inkstone_error_path(c)),
		Offset:      -1,
		Errno:       syscall.Errno(C.inkstone_error_os(c)),
		IsRetryable: bool(C.inkstone_error_is_retryable(c)),
	}
	if offset := C.go_error_offset(c); offset.has {
		e.Offset = int64(offset.value)
	}
	if lsn := C.go_error_lsn(c); lsn.has {
		e.LSN, e.HasLSN = uint64(lsn.value), true
	}
	return e
}

func invalid(what string) error { return &Error{Code: ErrInvalid, Message: what, Offset: -1} }
