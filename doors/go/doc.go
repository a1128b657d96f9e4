// Package inkstone is the Go door of Inkstone, a crash-safe append-only log. It calls the C library
// libinkstone, which pkg-config finds; it has no state of its own beyond the handles.
//
//	log, err := inkstone.Open("orders")
//	lsn, err := log.AppendDurable(ctx, []byte("one order")) // durable when it returns
//
// # What is durable
//
// After a crash of the process, the kernel or the power a log is a prefix of what was appended,
// with all that was durable. Each call says what is durable when it has returned without an error.
//
// # Goroutines
//
// All goroutines may use a Log and a Reader at the same time, and Close them while others use them:
// the others end, and later calls get ErrClosed. A Cursor is for one goroutine; another may close
// it. A Log has one writer at a time: a second Open is ErrLocked.
//
// A call that waits for the disk keeps a thread of the operating system. At most 64 calls of a
// handle do so at the same time; the others wait as goroutines. Goroutines in Follow keep none;
// in the log of another process one thread waits for all cursors of a Reader.
//
// # Contexts
//
// A call with a context returns when the context ends. That ends the waiting alone: a record that
// was appended stays appended, and becomes durable soon.
//
// # Streams
//
// OpenStreams opens many sequences in one log: topics, queues, raft groups. They share every flush,
// and an idle one keeps no old segment. Each change is part of a Batch, which is made as a whole:
//
//	numbers, err := streams.ApplyDurable(ctx, new(inkstone.Batch).Create(7, 1).Append(7, order))
//
// # Errors
//
// Every error of the library is an Error: what happened, to which path and offset, and what to do.
// It unwraps to its Code, which is the sentinel, and to the syscall.Errno if the operating system
// gave one. ErrClosed is os.ErrClosed too:
//
//	if errors.Is(err, inkstone.ErrNoRoom) { ... }
//	if errors.Is(err, syscall.ENOSPC) { ... }
//	if errors.Is(err, os.ErrClosed) { ... }
//
// # Cgo
//
// The package needs cgo, a C compiler and pkg-config. With CGO_ENABLED=0 it does not compile, and
// says so.
package inkstone
