/*
 * Inkstone, a crash-safe append-only log: the C door. Made from doors/c/src by a test; do not edit.
 *
 *     inkstone_log *log;
 *     inkstone_error *error;
 *     if (inkstone_open("orders", NULL, &log, &error) != INKSTONE_OK) {
 *         fprintf(stderr, "%s\n", inkstone_error_message(error));
 *         inkstone_error_free(error);
 *     }
 *
 * What holds for every function:
 *
 * CODES AND ERRORS. A call that can fail returns an inkstone_code, and INKSTONE_OK is 0. Its last
 * parameter is a place for an error object, or NULL if the program wants none. The call writes to
 * that place always: NULL, or an error that the caller frees with inkstone_error_free. What was
 * there before is not read, so it need not be set, and is not freed. Results that a failed call
 * hands out are NULL or 0.
 *
 * POINTERS. A pointer is NULL or points at what its type says, for as long as the call lasts. NULL
 * where a handle or a result is needed is INKSTONE_INVALID, and so is NULL with a size above 0. A
 * place for a result that the text calls optional may be NULL. Nothing of the caller's is kept
 * after the call, but a callback or listener with its context.
 *
 * WARNINGS. To ignore the code of a call that has a place for an error is a warning
 * (INKSTONE_MUST_USE).
 *
 * OWNERS. What a call puts into a place with two stars (inkstone_log **, char **) is the caller's
 * to free, once, with the function that the text names. `const char *` that a call returns is not
 * freed.
 *
 * THREADS. "Threads: any" means any thread, several at the same time, on the same handle. "One at a
 * time" means that the program sees to it. To free a handle while a call uses it is undefined. A
 * thread whose thread-local storage is being destroyed for the second time (a key of pthread whose
 * destructor sets it again) may get INKSTONE_PANICKED: do not call from there.
 *
 * SETTERS. One thread at a time may call inkstone_options_set... of the same options. Each is
 * INKSTONE_INVALID if `options` is NULL.
 *
 * STACK. A thread that calls the library, main included, needs INKSTONE_STACK_BYTES of stack for
 * it; on much less the process dies with SIGSEGV.
 *
 * TEXTS are in UTF-8 and end with a zero byte. Paths are bytes and end with one; they need not be
 * UTF-8.
 *
 * TIMES are microseconds. LSNs are uint64_t, from 1; 0 is "before the first record".
 *
 * DURABLE. "Durable" says what is on stable storage when the call has returned INKSTONE_OK. After a
 * crash of process, kernel or power a log is a prefix of what was appended, with all that was
 * durable.
 *
 * DESCRIPTORS. The log's own are never 0, 1 or 2. In a program that has closed one of these, a file
 * that the library opens has that number for a moment, and what another thread writes to it, or
 * puts there by dup2, meets the log: open /dev/null on the three first.
 *
 * FORK. In a process that was forked after a log was opened, calls that append, wait, read, sync or
 * truncate are INKSTONE_FORKED. No call writes anything, and calls that only ask what the log knows
 * answer. Free its handles, or call exec. The parent goes on undisturbed.
 *
 * PANICS. A bug of the library is INKSTONE_PANICKED, with a line on stderr; nothing unwinds into
 * the caller. Memory that cannot be had ends the process.
 *
 * UNDEFINED, because it cannot be seen: a handle that was freed, or is of another type; a second
 * free; a size beyond the memory at a pointer; a text without its zero byte; bytes that another
 * thread changes during the call; a C++ exception or a longjmp out of a callback; a changed
 * inkstone_pending; the end of a thread by pthread_exit or pthread_cancel within a call, callback
 * or listener (the process dies: disable cancellation around calls). A log that was closed and not
 * freed can be seen: INKSTONE_CLOSED.
 *
 * OPENING TWICE is INKSTONE_LOCKED, also within one process. A call from a signal handler is
 * undefined.
 */


#ifndef INKSTONE_H
#define INKSTONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The version that this header belongs to; inkstone_version() is that of the library that runs.
#define INKSTONE_VERSION "0.1.0"
#define INKSTONE_VERSION_MAJOR 0
#define INKSTONE_VERSION_MINOR 1
#define INKSTONE_VERSION_PATCH 0
// It rises with each version: `#if INKSTONE_VERSION_NUMBER >= 1002000` is "1.2.0 or later".
#define INKSTONE_VERSION_NUMBER \
    (INKSTONE_VERSION_MAJOR * 1000000 + INKSTONE_VERSION_MINOR * 1000 + INKSTONE_VERSION_PATCH)

// A call whose code must not be ignored. A program that defines it as nothing, before it includes
// this header, gets no warnings.
#ifndef INKSTONE_MUST_USE
#ifdef __GNUC__
#define INKSTONE_MUST_USE __attribute__((warn_unused_result))
#else
#define INKSTONE_MUST_USE
#endif
#endif


// How much stack a thread needs for the calls of this library, in bytes: more than twice what they
// use in a release build. What the thread's own functions use, its callbacks and listeners among
// them, comes on top. The log's own threads have 2 MiB.
#define INKSTONE_STACK_BYTES 131072

// The ABI that this header describes. It rises when a function or structure changes in a way that
// a compiled program notices; what is only added leaves it. It is the number in the shared
// library's soname.
#define INKSTONE_ABI_VERSION 1

// How a call ended. Further codes may come in later versions: treat one that you do not know as a
// failure.
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
enum inkstone_code : int32_t
#else
enum
#endif
{
    // The call did what it says.
    INKSTONE_OK = 0,
    // The operating system refused a call: see inkstone_error_os, inkstone_error_path and
    // inkstone_error_offset.
    INKSTONE_IO = 1,
    // Another writer, in this process or another, has the log open.
    INKSTONE_LOCKED = 2,
    // There is no log in the directory, and the call does not create one.
    INKSTONE_NO_LOG = 3,
    // The directory holds an unfinished copy, which is not a log yet.
    INKSTONE_INCOMPLETE = 4,
    // The operation was stopped before it was done.
    INKSTONE_STOPPED = 5,
    // Bytes that were promised to be durable are damaged or missing. No segment was changed.
    INKSTONE_CORRUPT = 6,
    // A newer program wrote this log, in a format that this library does not know. No file was
    // changed.
    INKSTONE_UNKNOWN_VERSION = 7,
    // A write or sync failed, now or earlier. Records after inkstone_error_lsn may or may not be
    // there: open the log again.
    INKSTONE_POISONED = 8,
    // The disk has no room. Nothing was lost: try again when there is room, or after
    // inkstone_truncate_before.
    INKSTONE_NO_ROOM = 9,
    // The record or batch is larger than the log's limit (the option record_bytes_max).
    INKSTONE_TOO_LARGE = 10,
    // A call that must not wait would have had to. Try again later.
    INKSTONE_BUSY = 11,
    // inkstone_truncate_before has truncated the record. inkstone_error_lsn is the first that is
    // left; of a stream it is inkstone_error_number.
    INKSTONE_TRUNCATED_BEFORE = 12,
    // There is no durable record with this LSN yet, or with this number in its stream.
    INKSTONE_NOT_YET = 13,
    // Records before this reader's position were truncated: by inkstone_truncate_after, or at the
    // end of a stream. inkstone_error_lsn is where it goes on, inkstone_error_number in a stream.
    INKSTONE_TRUNCATED_AFTER = 14,
    // An argument or option makes no sense; the message says which and why. Nothing was done.
    INKSTONE_INVALID = 15,
    // The log is closed.
    INKSTONE_CLOSED = 16,
    // This process was forked after the log was opened. The log belongs to the parent process;
    // nothing was done.
    INKSTONE_FORKED = 17,
    // There are no LSNs or segment numbers left, or no numbers of a stream.
    INKSTONE_USED_UP = 18,
    // A bug of the library: code in it panicked, and the panic ended at this call. Close the log
    // and open it again.
    INKSTONE_PANICKED = 19,
    // A failure that this version of the C library has no code for. The message says what it is.
    INKSTONE_OTHER = 20,
    // There is no stream with this id: it was never created, or was removed.
    INKSTONE_NO_STREAM = 21,
    // A stream with this id is there already.
    INKSTONE_EXISTS = 22,
    // The record does not get the number that the caller expects (inkstone_batch_append_at).
    // inkstone_error_number is the one that it gets.
    INKSTONE_OTHER_NUMBER = 23,
    // The log in the directory is of another kind than the one that was to be opened: a log with
    // streams, a raft log, a plain one. It was not changed.
    INKSTONE_OTHER_KIND = 24,
    // The log has a record that no program of ours writes there: a bug, or damage that the
    // checksums cannot see.
    INKSTONE_CONTRADICTION = 25,
    // Records are lost: the log was damaged, and was salvaged without them. inkstone_error_lsn is
    // where a reader goes on, inkstone_error_number in a stream. With a path: the last one that is
    // lost, and the log of streams takes no writer.
    INKSTONE_LOST = 26,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum inkstone_code inkstone_code;
#else
typedef int32_t inkstone_code;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What happened. Further kinds may come in later versions.
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
enum inkstone_event_kind : int32_t
#else
enum
#endif
{
    // A kind that this version of the C library has no name for.
    INKSTONE_EVENT_OTHER = 0,
    // The log was opened.
    INKSTONE_EVENT_RECOVERED = 1,
    // Something is not available or not safe here, and the log does something else instead.
    INKSTONE_EVENT_FALLBACK = 2,
    // A segment is full and durable.
    INKSTONE_EVENT_SEGMENT_SEALED = 3,
    // A segment change found no prepared file and used something else.
    INKSTONE_EVENT_POOL_EMPTY = 4,
    // The log could not prepare a file in the background; it tries again.
    INKSTONE_EVENT_PREPARATION_FAILED = 5,
    // A commit took longer than the option slow_commit_us.
    INKSTONE_EVENT_SLOW_COMMIT = 6,
    // A write or sync failed, and the log is poisoned: inkstone_event_error.
    INKSTONE_EVENT_POISONED = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum inkstone_event_kind inkstone_event_kind;
#else
typedef int32_t inkstone_event_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Changes of any number of streams, which are made together or not at all, in the order in which
// they were added. One thread at a time may use it. A call that adds a change and fails leaves the
// batch unfit: inkstone_streams_apply refuses it. So the codes of these calls may be ignored. To
// apply a batch twice makes its changes twice.
typedef struct inkstone_batch inkstone_batch;

// A position in a log from which records are read in order. One thread at a time may use it.
typedef struct inkstone_cursor inkstone_cursor;

// An error: a code, and what happened, to which path and offset, and what to do. It never changes.
typedef struct inkstone_error inkstone_error;

// An event, valid while a listener runs.
typedef struct inkstone_event inkstone_event;

// A log that is open for writing. All threads may use it at the same time. One log has one writer
// at a time.
typedef struct inkstone_log inkstone_log;

// Options for a log. Nothing changes them but the setters.
typedef struct inkstone_options inkstone_options;

// Reads durable records of a log. All threads may use it at the same time. Keep one instead of
// making one for each read: it remembers places and keeps files open.
typedef struct inkstone_reader inkstone_reader;

// Many streams in one log, open for writing. A stream has an id and dense numbers of its own, from
// a first one that its creator chooses. All streams share every flush. All threads may use it at
// the same time. One log has one writer at a time.
typedef struct inkstone_streams inkstone_streams;

// A position in a stream from which records are read in order. One thread at a time may use it.
typedef struct inkstone_streams_cursor inkstone_streams_cursor;

// Reads durable records of streams. All threads may use it at the same time.
typedef struct inkstone_streams_reader inkstone_streams_reader;

// Called once with what became of a record: `error` is NULL when it and all before it are on
// stable storage, and else why it may not be. The error is the library's and valid until the
// function returns. `lsn` is the record's in both cases.
typedef void (*inkstone_callback)(void *context, uint64_t lsn, const inkstone_error *error);

// A record, or a batch, that was appended and is not necessarily durable yet. It is the caller's
// memory and holds nothing. End each by one call of inkstone_wait, inkstone_on_durable or
// inkstone_let_go; that call sets `log` to NULL. One that is simply forgotten becomes durable with
// the next record that somebody waits for, at the latest when the log is closed. The log must not
// be freed before.
typedef struct {
    // The log; NULL when nothing is pending. Do not change it.
    const inkstone_log *log;
    // The LSN of the record; for a batch, that of its first record.
    uint64_t first_lsn;
    // The LSN of the record; for a batch, that of its last record.
    uint64_t lsn;
    // The library's. Do not change it.
    uint64_t cuts;
} inkstone_pending;

// Bytes somewhere in memory; laid out as struct iovec. `data` may be NULL if `size` is 0.
typedef struct {
    // Where they begin.
    const void *data;
    // How many they are.
    size_t size;
} inkstone_bytes;

// Where a consumer of a log is: its next record, and how often the log had been cut
// (inkstone_truncate_after) when the consumer read the one before. A consumer that stores both with
// what it has made of the records learns after a restart of records that were cut meanwhile.
typedef struct {
    // The next record.
    uint64_t lsn;
    // How many cuts there had been in the log's life.
    uint64_t cuts;
} inkstone_place;

// A record that is borrowed from a cursor: valid until the next call on that cursor.
typedef struct {
    // Its LSN.
    uint64_t lsn;
    // Its bytes; never NULL, not aligned.
    const void *data;
    // How many they are.
    size_t size;
} inkstone_record;

// A record of a stream that is borrowed from a cursor: valid until the next call on that cursor.
typedef struct {
    // Its number in the stream.
    uint64_t number;
    // Its bytes; never NULL, not aligned.
    const void *data;
    // How many they are.
    size_t size;
} inkstone_streams_record;

// A function that gets the log's events. The event is the library's and valid until the function
// returns.
typedef void (*inkstone_listener)(void *context, const inkstone_event *event);

// A function that is called when a context is not needed any more.
typedef void (*inkstone_destroy)(void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// ---- The calls that most programs need ----

// Opens the log in the directory `path`, which may be any bytes, creating both if they are not
// there. `options` may be NULL: the defaults. On failure `*log` is NULL.
//
// A program that gives up root does so before. The log keeps descriptors open, none of them 0, 1
// or 2: a program that closes the descriptors of others (closefrom, close_range) must not close
// them.
//
// Owner: the caller gets `*log` and frees it with inkstone_log_free. `options` stay the caller's
// and are copied. Threads: any. Durable: everything that the opened log shows.
INKSTONE_MUST_USE
inkstone_code inkstone_open(const char *path_of_log,
                            const inkstone_options *options,
                            inkstone_log **log,
                            inkstone_error **error);

// Appends one record and waits until it is durable. Calls of several threads share a flush.
//
// Owner: `lsn`, which may be NULL, is the caller's and gets the LSN. Threads: any. Durable: the
// record and all before it; with the option periodic_us they will be soon.
INKSTONE_MUST_USE
inkstone_code inkstone_append_durable(const inkstone_log *log,
                                      const void *data,
                                      size_t size,
                                      uint64_t *lsn,
                                      inkstone_error **error);

// Appends one record; its bytes are copied. Waits while every buffer is full, or while the segment
// changes.
//
// Owner: `pending` is the caller's (inkstone_pending says how it ends). Threads: any. Durable:
// nothing on return: wait for `pending`.
INKSTONE_MUST_USE
inkstone_code inkstone_append(const inkstone_log *log,
                              const void *data,
                              size_t size,
                              inkstone_pending *pending,
                              inkstone_error **error);

// Waits until the record is durable. The calling thread may write the group itself: a lone writer
// has no other thread to wait for. Ends `pending`, also when it fails: the error then tells what
// became of the record.
//
// Threads: any; each pending record on one at a time. Durable: the record and all before it; with
// the option periodic_us they will be soon.
INKSTONE_MUST_USE
inkstone_code inkstone_wait(inkstone_pending *pending, inkstone_error **error);

// Appends one record that nobody waits for. The log's own thread commits it soon.
//
// Owner: `lsn`, which may be NULL, is the caller's and gets the LSN. Threads: any. Durable:
// nothing on return: the record is durable when inkstone_sync has returned, or inkstone_durable
// has reached its LSN.
INKSTONE_MUST_USE
inkstone_code inkstone_append_unwaited(const inkstone_log *log,
                                       const void *data,
                                       size_t size,
                                       uint64_t *lsn,
                                       inkstone_error **error);

// Makes all records durable that were appended before, and puts the LSN of the last one into
// `lsn`, which may be NULL.
//
// Threads: any. Durable: every record whose append had returned before this call, also with
// the option periodic_us.
INKSTONE_MUST_USE
inkstone_code inkstone_sync(const inkstone_log *log, uint64_t *lsn, inkstone_error **error);

// Truncates all records before `first`. The files of segments without other records are used
// again, once no reader holds them.
//
// Threads: any. Durable: the truncation: those records do not come back.
INKSTONE_MUST_USE
inkstone_code inkstone_truncate_before(const inkstone_log *log,
                                       uint64_t first,
                                       inkstone_error **error);

// Closes the log: commits everything, and lets another writer open it. Other threads may use the
// log meanwhile: what they had appended is durable, and their later calls get INKSTONE_CLOSED. A
// second call returns the same as the first; one that comes while the first is running, on another
// thread or from a callback, returns INKSTONE_CLOSED without waiting, and nothing is durable by
// it. The handle stays valid until it is freed, which must wait for the first call. The log is
// closed also when this fails.
//
// Owner: the log stays the caller's to free. Threads: any. Durable: every record that was
// appended.
INKSTONE_MUST_USE
inkstone_code inkstone_close(const inkstone_log *log, inkstone_error **error);

// Frees a log, and closes it if it is open; errors of that closing are lost, so close it first.
// NULL is nothing. In a forked child it writes nothing.
//
// Owner: `log` is gone, and so is what is pending of it. Readers of it may be used on, and freed
// later. Threads: any, when no other call uses the log, and not from a callback or listener of
// this log. Durable: every record that was appended, if nothing failed.
void inkstone_log_free(inkstone_log *log);

// A reader of the durable records of a log that this process writes. From the first call on the
// log keeps what it writes in memory for its readers (the option tail_bytes).
//
// Owner: the caller gets `*reader` and frees it with inkstone_reader_free, also after the log. It
// may be used after the log is closed, until the log is opened for writing again. Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_reader_of(const inkstone_log *log,
                                 inkstone_reader **reader,
                                 inkstone_error **error);

// The record with this LSN, in memory of its own. On failure `bytes->data` is NULL.
//
// Owner: the caller gets the bytes and frees them with inkstone_bytes_free. Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_reader_get(const inkstone_reader *reader,
                                  uint64_t lsn,
                                  inkstone_bytes *bytes,
                                  inkstone_error **error);

// Frees bytes that a call of this library has put into an `inkstone_bytes *bytes`, and sets `data`
// to NULL and `size` to 0. NULL, or bytes that are NULL, are nothing.
//
// Threads: any, once.
void inkstone_bytes_free(inkstone_bytes *bytes);

// A cursor whose next record is the one with this LSN, which may not exist yet. No record has LSN
// 0.
//
// Owner: the caller gets `*cursor` and frees it with inkstone_cursor_free, also after the reader.
// Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_cursor_new(const inkstone_reader *reader,
                                  uint64_t lsn,
                                  inkstone_cursor **cursor,
                                  inkstone_error **error);

// The next record. INKSTONE_NOT_YET, without an error object, when it is not durable yet: call
// again later, or call inkstone_cursor_next_within. INKSTONE_TRUNCATED_BEFORE: seek to continue.
// INKSTONE_TRUNCATED_AFTER, INKSTONE_LOST: the next call goes on at inkstone_error_lsn.
//
// Owner: the record is borrowed from the cursor: valid until the next call on it. Threads: one at
// a time.
INKSTONE_MUST_USE
inkstone_code inkstone_cursor_next(inkstone_cursor *cursor,
                                   inkstone_record *record,
                                   inkstone_error **error);

// Frees a cursor, and with it the record that it returned last. NULL is nothing.
//
// Threads: any, when no other call uses the cursor.
void inkstone_cursor_free(inkstone_cursor *cursor);

// Frees a reader. Its cursors may be used on. NULL is nothing.
//
// Threads: any, when no other call uses the reader.
void inkstone_reader_free(inkstone_reader *reader);

// What happened, to what, and what to do: a sentence for people, in UTF-8 (bytes of a path that
// are not are replaced). "" for NULL.
//
// Owner: the error; valid until it is freed. Threads: any.
const char *inkstone_error_message(const inkstone_error *error);

// Frees an error. NULL is nothing.
//
// Threads: any, once.
void inkstone_error_free(inkstone_error *error);

// ---- All others ----

// Waits until the durable watermark reaches `lsn`, for up to `timeout_us` microseconds
// (UINT64_MAX: for ever), for a thread that has nothing but the LSN. The record need not be
// appended yet. INKSTONE_NOT_YET, without an error object, when the time is over;
// INKSTONE_TRUNCATED_AFTER if the record was truncated meanwhile. It commits nothing by itself: in
// a log without a thread of its own (the option own_thread) another call must.
//
// Threads: any. Durable: every record up to `lsn`.
INKSTONE_MUST_USE
inkstone_code inkstone_wait_durable(const inkstone_log *log,
                                    uint64_t lsn,
                                    uint64_t timeout_us,
                                    inkstone_error **error);

// Has `callback` called once with `context` and the durable watermark when that has changed since
// this call: it has risen, or inkstone_truncate_after has cut the log. With an error it will
// change no more (INKSTONE_CLOSED, INKSTONE_POISONED). So many can follow a log without a thread
// for each: call this once for all of them, read to the end (inkstone_cursor_next), let all wait
// for the callback, and begin again. In this order no change is missed. It commits nothing, and
// counts as no waiter.
//
// The thread that made the watermark change makes the call, beside other callbacks; if the outcome
// is known already, this call does at once. What inkstone_on_durable says of a callback holds for
// this one, but for their order. A log that is closed or freed leaves none uncalled. The callback
// is not called if this call returns an error other than INKSTONE_PANICKED.
//
// Owner: `context` is the caller's and is passed on as it is. Threads: any. Durable: every record
// up to the watermark.
INKSTONE_MUST_USE
inkstone_code inkstone_on_watermark(const inkstone_log *log,
                                    inkstone_callback callback,
                                    void *context,
                                    inkstone_error **error);

// The first record that was not truncated; one above the last if there is none. 0 for NULL.
//
// Threads: any.
uint64_t inkstone_first(const inkstone_log *log);

// The durable watermark: every record up to this LSN is on stable storage. 0 when there is none,
// and for NULL.
//
// Threads: any.
uint64_t inkstone_durable(const inkstone_log *log);

// The last LSN given to a record, durable or not. 0 when there is none, and for NULL.
//
// Threads: any.
uint64_t inkstone_last(const inkstone_log *log);

// The first record of the last segment, or the next one if it has none yet. A program that keeps a
// summary of older records in the log repeats it when this has risen: then
// inkstone_truncate_before can free all segments before it. 0 for NULL.
//
// Threads: any.
uint64_t inkstone_head_first(const inkstone_log *log);

// Truncates all records after `last`; the next record gets the LSN after it. The truncated records
// become durable first, so waiting for them succeeds. Readers positioned after `last` get
// INKSTONE_TRUNCATED_AFTER.
//
// Threads: any. Durable: the truncation, as a whole: those records do not come back.
INKSTONE_MUST_USE
inkstone_code inkstone_truncate_after(const inkstone_log *log,
                                      uint64_t last,
                                      inkstone_error **error);

// What the opening found and did, as a JSON object: text (a sentence for people), created, clean,
// torn, row, first, last, epoch, segments, bytes_read, leftovers, waits_for_room.
//
// Owner: the caller gets `*text` and frees it with inkstone_text_free. Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_recovery_json(const inkstone_log *log, char **text, inkstone_error **error);

// The way of writing that was chosen for this file system and device, and why, as a sentence;
// warnings follow, a line each.
//
// Owner: the caller gets `*text` and frees it with inkstone_text_free. Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_choice_text(const inkstone_log *log, char **text, inkstone_error **error);

// What the log has done since it was opened, as a JSON object of numbers; times are objects with
// count, sum_us, p50_us, p99_us, p999_us and max_us. A later version may add members. All 0 in a
// forked child.
//
// Owner: the caller gets `*text` and frees it with inkstone_text_free. Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_stats_json(const inkstone_log *log, char **text, inkstone_error **error);

// Appends one record if that needs no waiting; else INKSTONE_BUSY, and the log's own thread makes
// room.
//
// Owner: `pending` is the caller's. Threads: any. Durable: nothing on return: wait for `pending`.
INKSTONE_MUST_USE
inkstone_code inkstone_try_append(const inkstone_log *log,
                                  const void *data,
                                  size_t size,
                                  inkstone_pending *pending,
                                  inkstone_error **error);

// Appends one record whose bytes are in `count` parts: the same as inkstone_append of the parts
// joined. Each part is copied once. An array of struct iovec may be passed, by a cast.
//
// Owner: `parts` and `pending` are the caller's. Threads: any. Durable: nothing on return: wait
// for `pending`.
INKSTONE_MUST_USE
inkstone_code inkstone_append_parts(const inkstone_log *log,
                                    const inkstone_bytes *parts,
                                    size_t count,
                                    inkstone_pending *pending,
                                    inkstone_error **error);

// Appends `count` records, all or none: after a crash either all of them are in the log or none. A
// batch has at least one record. A batch of several is limited as a record is (the option
// record_bytes_max): each of them counts with 24 bytes more, rounded up to a multiple of 8.
//
// Owner: `records` and `pending` are the caller's. Threads: any. Durable: nothing on return: wait
// for `pending`.
INKSTONE_MUST_USE
inkstone_code inkstone_append_batch(const inkstone_log *log,
                                    const inkstone_bytes *records,
                                    size_t count,
                                    inkstone_pending *pending,
                                    inkstone_error **error);

// Has `callback` called once with `context`: when the record is durable, or when it is known that
// it may never be. Ends `pending`, unless `callback` is NULL. The callback is not called if this
// call returns an error other than INKSTONE_PANICKED.
//
// The thread that made the record durable makes the call (a thread of the program's that waits, or
// the log's own); if the outcome is known already, this call does at once, in a forked child too.
// Those that wait at the same time come one at a time, in the order of their LSNs. The record
// counts as waited for. A log that is closed or freed leaves no callback uncalled, but a process
// that ends does. They may come after inkstone_close has returned if another thread was calling
// callbacks at that moment, and before inkstone_log_free returns only if no other thread is.
//
// Nothing of the log is locked while a callback runs: it may append, register callbacks, truncate
// and close, and must not free the log. It holds up other callbacks and often a waiting thread, so
// it must not block. It must not throw a C++ exception or leave by longjmp. If it forks, the child
// must call exec or _exit. One that runs an interpreter's code (Python's, say) must not come when
// the interpreter has ended, which would end the thread and so the process: close the log before.
//
// Owner: `context` is the caller's and is passed on as it is. Threads: any. Durable: nothing on
// return; the record and all before it when the callback gets no error.
INKSTONE_MUST_USE
inkstone_code inkstone_on_durable(inkstone_pending *pending,
                                  inkstone_callback callback,
                                  void *context,
                                  inkstone_error **error);

// Lets a pending record go: nobody waits for it, and the log's own thread commits it soon. NULL,
// or a record that is pending no more, is nothing.
//
// Threads: any; each pending record on one at a time. Durable: nothing on return.
void inkstone_let_go(inkstone_pending *pending);

// Opens the log in the directory `path` for reading only, also beside a writer in another process.
// It writes and creates nothing and takes no lock. `options` may be NULL; of them only access and
// expect_durable apply. On failure `*reader` is NULL.
//
// Owner: the caller gets `*reader` and frees it with inkstone_reader_free. `options` stay the
// caller's. Threads: any. Durable: everything that the reader shows.
INKSTONE_MUST_USE
inkstone_code inkstone_reader_open(const char *path_of_log,
                                   const inkstone_options *options,
                                   inkstone_reader **reader,
                                   inkstone_error **error);

// The first record that is left; one above the last if there is none. 0 for NULL.
//
// Threads: any.
uint64_t inkstone_reader_first(const inkstone_reader *reader);

// The last record that can be read. A reader of inkstone_reader_open returns what it saw last; it
// checks the files again when it is asked for a record above it. 0 when there is none, and for
// NULL.
//
// Threads: any.
uint64_t inkstone_reader_durable(const inkstone_reader *reader);

// Whether the log that this process writes takes records: INKSTONE_OK if it does, and for a log
// that another process writes; else INKSTONE_POISONED, INKSTONE_CLOSED or INKSTONE_FORKED, with
// its error object. Its durable records can be read all the same.
//
// Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_reader_end_of_log(const inkstone_reader *reader, inkstone_error **error);

// What inkstone_reader_open has found, as the JSON object of inkstone_recovery_json; `null` for a
// reader of a log that this process writes.
//
// Owner: the caller gets `*text` and frees it with inkstone_text_free. Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_reader_recovery_json(const inkstone_reader *reader,
                                            char **text,
                                            inkstone_error **error);

// A cursor at a place that a cursor of this log had, in this process or in an earlier one
// (inkstone_cursor_place). If records before the place were cut since, its first call is
// INKSTONE_TRUNCATED_AFTER, and the next one goes on at inkstone_error_lsn. The place of another
// log, or of a newer copy, is INKSTONE_INVALID then.
//
// Owner: the caller gets `*cursor` and frees it with inkstone_cursor_free, also after the reader.
// Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_cursor_from(const inkstone_reader *reader,
                                   inkstone_place place,
                                   inkstone_cursor **cursor,
                                   inkstone_error **error);

// The next record; waits for it up to `timeout_us` microseconds (UINT64_MAX: for ever).
// INKSTONE_NOT_YET, without an error object, when the time is over. INKSTONE_CLOSED and
// INKSTONE_POISONED when all records were shown and no more will come. Otherwise as
// inkstone_cursor_next.
//
// Owner: the record is borrowed from the cursor: valid until the next call on it. Threads: one at
// a time.
INKSTONE_MUST_USE
inkstone_code inkstone_cursor_next_within(inkstone_cursor *cursor,
                                          uint64_t timeout_us,
                                          inkstone_record *record,
                                          inkstone_error **error);

// Moves to another LSN. INKSTONE_INVALID if `cursor` is NULL.
//
// Owner: a record that the cursor returned is not valid any more. Threads: one at a time.
inkstone_code inkstone_cursor_seek(inkstone_cursor *cursor, uint64_t lsn);

// The LSN of the record that comes next. 0 for NULL.
//
// Threads: one at a time.
uint64_t inkstone_cursor_next_lsn(const inkstone_cursor *cursor);

// Where the cursor is, for inkstone_cursor_from. Zeros for NULL.
//
// Threads: one at a time.
inkstone_place inkstone_cursor_place(const inkstone_cursor *cursor);

// The durable watermark that the cursor knows, as inkstone_reader_durable: how far it can read
// now. 0 for NULL.
//
// Threads: one at a time.
uint64_t inkstone_cursor_durable(const inkstone_cursor *cursor);

// Opens the streams in the directory `path`, creating the log if there is none. `options` may be
// NULL: the defaults. A log of another kind is INKSTONE_OTHER_KIND, and is not changed. On failure
// `*streams` is NULL. What inkstone_open says of descriptors holds.
//
// Owner: the caller gets `*streams` and frees it with inkstone_streams_free. `options` stay the
// caller's and are copied. Threads: any. Durable: everything that the opened streams show.
INKSTONE_MUST_USE
inkstone_code inkstone_streams_open(const char *path_of_log,
                                    const inkstone_options *options,
                                    inkstone_streams **streams,
                                    inkstone_error **error);

// Closes the streams and their log: commits everything, and lets another writer open it. What
// inkstone_close says of other threads and of a second call holds.
//
// Owner: the streams stay the caller's to free. Threads: any. Durable: every change that was
// applied.
INKSTONE_MUST_USE
inkstone_code inkstone_streams_close(const inkstone_streams *streams, inkstone_error **error);

// Frees streams, and closes them if they are open; errors of that closing are lost, so close them
// first. NULL is nothing. In a forked child it writes nothing.
//
// Owner: `streams` is gone, and so is what is pending of it, and the log of inkstone_streams_log.
// Readers of it may be used on, and freed later. Threads: any, when no other call uses the
// streams, and not from a callback or listener. Durable: every change that was applied, if nothing
// failed.
void inkstone_streams_free(inkstone_streams *streams);

// Appends one record to a stream; its bytes are copied. Waits while the log has no room in its
// buffers. An unknown stream is INKSTONE_NO_STREAM.
//
// Owner: `number`, which may be NULL, is the caller's and gets the record's number. `pending` is
// the caller's, as of inkstone_append: end it by inkstone_wait, inkstone_on_durable or
// inkstone_let_go. Its LSN is that of the record of the log. Threads: any. Durable: nothing on
// return: wait for `pending`.
INKSTONE_MUST_USE
inkstone_code inkstone_streams_append(const inkstone_streams *streams,
                                      uint64_t stream,
                                      const void *data,
                                      size_t size,
                                      uint64_t *number,
                                      inkstone_pending *pending,
                                      inkstone_error **error);

// Makes all changes of a batch, or none: after a crash, too, all of them are there or none. Waits
// while the log has no room in its buffers. A change that cannot be made is an error that names
// its stream (inkstone_error_stream), and then nothing has changed. The batch stays as it is.
//
// Owner: `numbers`, which may be NULL, is the caller's place for one number for each record that
// the batch appends, in order. `pending` is the caller's, as of inkstone_streams_append.
// Threads: any. Durable: nothing on return: wait for `pending`.
INKSTONE_MUST_USE
inkstone_code inkstone_streams_apply(const inkstone_streams *streams,
                                     const inkstone_batch *batch,
                                     uint64_t *numbers,
                                     inkstone_pending *pending,
                                     inkstone_error **error);

// How large the streams are, and what was moved, as a JSON object of numbers: streams, live_bytes,
// table_bytes (a table of all streams, with their notes), log_bytes, sections, moved_records,
// moved_bytes, lost_records (damaged, when they were to be moved), housekeeping_bytes,
// front_live_bytes (what the front of the log waits for); and not_moved, null or the error for
// which the front could not be moved or given back last. A later version may add members. All 0 in
// a forked child.
//
// Owner: the caller gets `*text` and frees it with inkstone_text_free. Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_streams_stats_json(const inkstone_streams *streams,
                                          char **text,
                                          inkstone_error **error);

// The log below, for what it knows: inkstone_durable, inkstone_wait_durable,
// inkstone_on_watermark, inkstone_stats_json. Nobody else may append to it, truncate it, or close
// it. NULL for NULL.
//
// Owner: the streams; valid until they are freed. Threads: any.
const inkstone_log *inkstone_streams_log(const inkstone_streams *streams);

// An empty batch.
//
// Owner: the caller, who frees it with inkstone_batch_free. Threads: any.
inkstone_batch *inkstone_batch_new(void);

// Frees a batch. What was applied stays. NULL is nothing.
//
// Threads: any, once.
void inkstone_batch_free(inkstone_batch *batch);

// Creates a stream whose first record gets the number `first`.
//
// Threads: one at a time.
inkstone_code inkstone_batch_create(inkstone_batch *batch, uint64_t stream, uint64_t first);

// Appends a record; it gets the next number of its stream. Its bytes are copied.
//
// Threads: one at a time.
inkstone_code inkstone_batch_append(inkstone_batch *batch,
                                    uint64_t stream,
                                    const void *data,
                                    size_t size);

// Appends a record that must get this number: with any other the batch is INKSTONE_OTHER_NUMBER
// when it is applied.
//
// Threads: one at a time.
inkstone_code inkstone_batch_append_at(inkstone_batch *batch,
                                       uint64_t stream,
                                       uint64_t number,
                                       const void *data,
                                       size_t size);

// Replaces the note of a stream: up to 3840 bytes that change in order with its records, such as a
// vote, or a consumer's place. Without bytes the stream has none any more.
//
// Threads: one at a time.
inkstone_code inkstone_batch_note(inkstone_batch *batch,
                                  uint64_t stream,
                                  const void *data,
                                  size_t size);

// Truncates the records of a stream before `first`. If they are gone already, nothing changes.
//
// Threads: one at a time.
inkstone_code inkstone_batch_truncate_before(inkstone_batch *batch,
                                             uint64_t stream,
                                             uint64_t first);

// Truncates the records of a stream after `last`; the next one gets the number after it.
//
// Threads: one at a time.
inkstone_code inkstone_batch_truncate_after(inkstone_batch *batch, uint64_t stream, uint64_t last);

// Truncates all records of a stream; the next one gets the number `first`, which may be any: a
// snapshot was installed. The note stays.
//
// Threads: one at a time.
inkstone_code inkstone_batch_restart_at(inkstone_batch *batch, uint64_t stream, uint64_t first);

// Removes a stream with its records and its note. Its id may be created again.
//
// Threads: one at a time.
inkstone_code inkstone_batch_remove(inkstone_batch *batch, uint64_t stream);

// A reader of the durable records of streams that this process writes.
//
// Owner: the caller gets `*reader` and frees it with inkstone_streams_reader_free, also after the
// streams. It may be used after they are closed, until they are opened for writing again.
// Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_streams_reader_of(const inkstone_streams *streams,
                                         inkstone_streams_reader **reader,
                                         inkstone_error **error);

// Opens the streams in the directory `path` for reading only, also beside a writer in another
// process. It writes and creates nothing and takes no lock. `options` may be NULL; of them only
// access, expect_durable and cache_bytes apply. On failure `*reader` is NULL.
//
// Owner: the caller gets `*reader` and frees it with inkstone_streams_reader_free. `options` stay
// the caller's. Threads: any. Durable: everything that the reader shows.
INKSTONE_MUST_USE
inkstone_code inkstone_streams_reader_open(const char *path_of_log,
                                           const inkstone_options *options,
                                           inkstone_streams_reader **reader,
                                           inkstone_error **error);

// Frees a reader. Its cursors may be used on. NULL is nothing.
//
// Threads: any, when no other call uses the reader.
void inkstone_streams_reader_free(inkstone_streams_reader *reader);

// Puts the ids of the streams from `from` on into `ids`, in order, at most `count_max`, and how
// many they are into `count`. For the next ones call it with the last id and 1 more.
//
// Owner: `ids` and `count` are the caller's. Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_streams_ids(const inkstone_streams_reader *reader,
                                   uint64_t from,
                                   uint64_t *ids,
                                   size_t count_max,
                                   size_t *count,
                                   inkstone_error **error);

// Puts the number of the first record that is left into `first`, and the number that the next
// record gets into `next`; either may be NULL. If both are the same, the stream has no record. In
// the process that writes, records below `next` may not be durable yet.
//
// Owner: `first` and `next` are the caller's. Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_streams_bounds(const inkstone_streams_reader *reader,
                                      uint64_t stream,
                                      uint64_t *first,
                                      uint64_t *next,
                                      inkstone_error **error);

// The note of a stream, in memory of its own; no bytes if it has none. In the process that writes,
// it may not be durable yet. On failure `bytes->data` is NULL.
//
// Owner: the caller gets the bytes and frees them with inkstone_bytes_free. Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_streams_note(const inkstone_streams_reader *reader,
                                    uint64_t stream,
                                    inkstone_bytes *bytes,
                                    inkstone_error **error);

// The record of a stream with this number, in memory of its own. INKSTONE_NO_STREAM,
// INKSTONE_TRUNCATED_BEFORE, INKSTONE_NOT_YET, also for a record that is not durable yet. On
// failure `bytes->data` is NULL.
//
// Owner: the caller gets the bytes and frees them with inkstone_bytes_free. Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_streams_get(const inkstone_streams_reader *reader,
                                   uint64_t stream,
                                   uint64_t number,
                                   inkstone_bytes *bytes,
                                   inkstone_error **error);

// A cursor whose next record is the one of this stream with this number, which may not exist yet.
//
// Owner: the caller gets `*cursor` and frees it with inkstone_streams_cursor_free, also after the
// reader. Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_streams_cursor_new(const inkstone_streams_reader *reader,
                                          uint64_t stream,
                                          uint64_t number,
                                          inkstone_streams_cursor **cursor,
                                          inkstone_error **error);

// Frees a cursor, and with it the record that it returned last. NULL is nothing.
//
// Threads: any, when no other call uses the cursor.
void inkstone_streams_cursor_free(inkstone_streams_cursor *cursor);

// The next record. INKSTONE_NOT_YET, without an error object, when it is not durable yet.
// INKSTONE_TRUNCATED_BEFORE: continue with a new cursor at inkstone_error_number.
// INKSTONE_TRUNCATED_AFTER, once, when records before the cursor were truncated at the end of the
// stream, restarted, or removed with it: the next call goes on at inkstone_error_number.
// INKSTONE_NO_STREAM when the stream was removed.
//
// Owner: the record is borrowed from the cursor: valid until the next call on it. Threads: one at
// a time.
INKSTONE_MUST_USE
inkstone_code inkstone_streams_cursor_next(inkstone_streams_cursor *cursor,
                                           inkstone_streams_record *record,
                                           inkstone_error **error);

// The next record; waits for it up to `timeout_us` microseconds (UINT64_MAX: for ever).
// INKSTONE_NOT_YET, without an error object, when the time is over. INKSTONE_CLOSED and
// INKSTONE_POISONED when all records were shown and no more will come. Otherwise as
// inkstone_streams_cursor_next.
//
// Owner: the record is borrowed from the cursor: valid until the next call on it. Threads: one at
// a time.
INKSTONE_MUST_USE
inkstone_code inkstone_streams_cursor_next_within(inkstone_streams_cursor *cursor,
                                                  uint64_t timeout_us,
                                                  inkstone_streams_record *record,
                                                  inkstone_error **error);

// Options with their defaults, which are durable and fit most uses.
//
// Owner: the caller, who frees them with inkstone_options_free. Threads: any.
inkstone_options *inkstone_options_new(void);

// Frees options. Logs that were opened with them do not need them. NULL is nothing.
//
// Threads: any, once.
void inkstone_options_free(inkstone_options *options);

// Sets an option: `value` is a text, whatever the option is. An unknown name, or a value that does
// not fit, is INKSTONE_INVALID, and the message says what would; an opening refuses options that
// contradict each other. The names that a program may need:
//
// - begin_at: the LSN of the first record of a new log, 1 by default. An existing log goes on
//   after its last record.
// - create: "true", the default: a log is created where there is none. "false": that is
//   INKSTONE_NO_LOG, also where the directory is missing too.
// - create_parents: "true": missing directories above the log's own are created too. "false", the
//   default: that is INKSTONE_NO_LOG, since a file system may not be mounted there.
// - disk_budget_bytes: how many bytes of the disk all files of the log together may use; no limit
//   by default. An append beyond it gets INKSTONE_NO_ROOM.
// - expect_durable: the caller knows that everything up to this LSN was acknowledged as durable:
//   if the log ends earlier, or is not there, opening is INKSTONE_CORRUPT and changes no segment.
//   It may make the directory and its lock file.
// - file_mode: the permissions of the files that the log creates, in octal as for chmod: 600 by
//   default. The umask clears bits as usual.
// - periodic_us: NOT DURABLE AT ONCE. Every append counts as acknowledged when it returns, and
//   waiting does not wait. A power loss, a kernel panic or a killed process can lose the records
//   of the last so many microseconds. What is left is still a prefix.
// - record_bytes_max: the size of the largest record, and of the largest batch: 16 MiB by default.
//   It must fit in a segment.
// - segment_bytes: the size of a segment's file: from 64 KiB to 4 GiB, a multiple of 4096; 64 MiB
//   by default. A new log begins with smaller ones.
// - slow_commit_us: the listener gets an event for each commit that takes this long or longer: a
//   second by default.
//
// The names for experts:
//
// - access: how files are read and written: "buffered" or "direct" (past the page cache). By
//   default by rule.
// - buffer_bytes: the size of each of the two buffers in which records are gathered: from 8 KiB to
//   512 MiB, 1 MiB by default.
// - durability: the call that makes a commit durable: "fdatasync", "fsync", "rwf-dsync", "o-dsync"
//   or "o-sync". All are equally durable. By default by rule.
// - free_segments_max: how many files of obsolete segments are kept so that their blocks can be
//   used again. By default by rule.
// - own_thread: "true", the default: a thread of the log commits records that no thread waits for,
//   and makes callbacks. "false": only the program's threads commit, by inkstone_wait,
//   inkstone_append_durable, inkstone_sync, inkstone_close, or by filling a buffer;
//   inkstone_wait_durable and cursors wait for one of these.
// - pad_groups: "true": each commit gets blocks of 4096 bytes of its own, for devices that may
//   harm bytes that do not change. "false", the default: it starts where the last one ended.
// - preparation: how the blocks of a new segment are prepared: "zeros" (a commit then changes no
//   metadata) or "fallocate" (quick to prepare, slower to write). By default by rule.
// - tail_bytes: how many bytes of memory keep what was written last for this process's readers: 4
//   MiB by default. 0: readers read files.
//
// The names for inkstone_streams_open:
//
// - cache_bytes: how many bytes of directories of older sections are kept in memory: 16 MiB by
//   default.
// - section_bytes: how many bytes of the log share one directory: from 16 KiB to 2 GiB, 64 MiB by
//   default; best the size of a segment.
// - size_multiple: by how much the log may be larger than what lives in it, from 2, the default,
//   before records in its oldest section are moved.
//
// Owner: `name` and `value` stay the caller's.
INKSTONE_MUST_USE
inkstone_code inkstone_options_set(inkstone_options *options,
                                   const char *name,
                                   const char *value,
                                   inkstone_error **error);

// Has `listener` called with `context` for every event of a log that is opened with these options.
// `destroy`, which may be NULL, is called once with `context` when these options and all logs,
// readers and cursors opened with them are freed (also when the listener is replaced, or refused
// because `listener` is NULL).
//
// The listener runs on the thread where the event happened, on several at the same time, with
// nothing of the log locked: it may append, read, truncate and close, and must not free the log.
// An event that its own call causes can come within that call. One that appends for every event
// may so never return, and the stack ends: append for rare kinds alone, or let another thread do
// it. It should be quick. It must not throw a C++ exception or leave by longjmp. If it forks, the
// child must call exec or _exit.
//
// Owner: `context` is passed on as it is.
inkstone_code inkstone_options_set_listener(inkstone_options *options,
                                            inkstone_listener listener,
                                            void *context,
                                            inkstone_destroy destroy);

// Reads the whole log in `path`, also beside a living writer, and reports every damaged place that
// can be found. `is_intact`, which may be NULL, says whether nothing that was promised is damaged
// or missing. `json`, which may be NULL, gets the report: path, intact, verdict, row, first, last,
// promise, clean, writer, records, record_bytes, gaps (first, last: records that a salvage could
// not save), segments, other_files, damage (path, segment, offset, lsn, reason, row, details),
// doubts. Damage is no error of this call. Where there is no
// log, or no directory, that is INKSTONE_NO_LOG. It writes nothing.
//
// Owner: the caller gets `*json` and frees it with inkstone_text_free. Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_verify(const char *path_of_log,
                              bool *is_intact,
                              char **json,
                              inkstone_error **error);

// Copies the records of the log in `from` into a new log in `to`; each keeps its LSN. A writer may
// append meanwhile: what it has promised to be durable is copied, which may leave out its last
// records until it has been idle for a tenth of a second. `options`, which may be NULL, apply
// to the new log. `records`, which may be NULL, gets their number. A copy that fails removes its
// files; opening one that is not complete is INKSTONE_INCOMPLETE.
//
// Owner: `options` stay the caller's. Threads: any. Durable: the copy, which is closed.
INKSTONE_MUST_USE
inkstone_code inkstone_copy(const char *from,
                            const char *to,
                            const inkstone_options *options,
                            uint64_t *records,
                            inkstone_error **error);

// The first record to keep of the log in `path`, for inkstone_truncate_before, when its newest
// segments with at least `bytes` bytes are to stay. Changes nothing; a writer may append
// meanwhile.
//
// Owner: `first` is the caller's. Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_keep_bytes(const char *path_of_log,
                                  uint64_t bytes,
                                  uint64_t *first,
                                  inkstone_error **error);

// As inkstone_keep_bytes, when every record of the last `seconds` seconds is to stay, by the times
// of the files.
//
// Owner: `first` is the caller's. Threads: any.
INKSTONE_MUST_USE
inkstone_code inkstone_keep_seconds(const char *path_of_log,
                                    uint64_t seconds,
                                    uint64_t *first,
                                    inkstone_error **error);

// What kind of event it is.
//
// Threads: any, while the listener runs.
inkstone_event_kind inkstone_event_get_kind(const inkstone_event *event);

// What happened: a sentence for people, in UTF-8. "" for NULL.
//
// Owner: the event; valid while the listener runs. Threads: any.
const char *inkstone_event_text(const inkstone_event *event);

// The error of INKSTONE_EVENT_POISONED; NULL for other events.
//
// Owner: the event; valid while the listener runs. Do not free it. Threads: any.
const inkstone_error *inkstone_event_error(const inkstone_event *event);

// The code of the error; INKSTONE_OK for NULL.
//
// Threads: any.
inkstone_code inkstone_error_code(const inkstone_error *error);

// What a program or its operator can do about an error of this code: a sentence. "" for NULL.
//
// Owner: the library; never freed. Threads: any.
const char *inkstone_error_advice(const inkstone_error *error);

// The file or directory that the error is about, byte for byte; NULL if there is none.
//
// Owner: the error; valid until it is freed. Threads: any.
const char *inkstone_error_path(const inkstone_error *error);

// Puts the byte of the file at which it happened into `offset`, and returns true; false if there
// is none.
//
// Threads: any.
bool inkstone_error_offset(const inkstone_error *error, uint64_t *offset);

// Puts the LSN that belongs to the error into `lsn`, and returns true; false if there is none.
// INKSTONE_TRUNCATED_BEFORE: the first record that is left. INKSTONE_TRUNCATED_AFTER and
// INKSTONE_LOST: where the reader goes on. INKSTONE_NOT_YET, INKSTONE_POISONED: the last durable record. INKSTONE_CORRUPT:
// the record that should be there, if it is known.
//
// Threads: any.
bool inkstone_error_lsn(const inkstone_error *error,
                        uint64_t *lsn);

// Puts the id of the stream that the error is about into `stream`, and returns true; false if
// there is none.
//
// Threads: any.
bool inkstone_error_stream(const inkstone_error *error, uint64_t *stream);

// Puts the number in a stream that belongs to the error into `number`, and returns true; false if
// there is none. INKSTONE_TRUNCATED_BEFORE: the first record that is left.
// INKSTONE_TRUNCATED_AFTER: where the cursor goes on. INKSTONE_NOT_YET, INKSTONE_OTHER_NUMBER: the
// number that the next record gets.
//
// Threads: any.
bool inkstone_error_number(const inkstone_error *error, uint64_t *number);

// The operating system's error number (errno), also as the cause of a poison; 0 if there is none.
//
// Threads: any.
int inkstone_error_os(const inkstone_error *error);

// Whether the same call can succeed later, without opening the log again.
//
// Threads: any.
bool inkstone_error_is_retryable(const inkstone_error *error);

// A code in words, such as "no room"; "other" for a number that is no code.
//
// Owner: the library; never freed. Threads: any.
const char *inkstone_code_name(int32_t code);

// Frees a text that a call of this library has put into a `char **`. NULL is nothing.
//
// Threads: any, once.
void inkstone_text_free(char *text);

// The ABI of the library that runs. A program that may meet another library than it was compiled
// for (one that loads it by name, say) compares it with INKSTONE_ABI_VERSION before any other
// call.
//
// Threads: any.
uint32_t inkstone_abi_version(void);

// The version of the library, such as "0.1.0".
//
// Owner: the library; never freed. Threads: any.
const char *inkstone_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* INKSTONE_H */
