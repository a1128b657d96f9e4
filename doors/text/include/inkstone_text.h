/*
 * Inkstone's text log: lines that survive SIGKILL, at the speed of memory. Made from doors/text/src
 * by a test; do not edit. Link with -linkstone_text.
 *
 *     char *error;
 *     inkstone_text_log *log = inkstone_text_open("app.log", "survive=kill", &error);
 *     if (log == NULL) {
 *         fprintf(stderr, "%s\n", error);
 *         free(error);
 *         return 1;
 *     }
 *     inkstone_text_write(log, "hello\n", 6);
 *     if (inkstone_text_close(log, &error) < 0) { ... }
 *     inkstone_text_log_free(log);
 *
 * OPTIONS are words NAME=VALUE with spaces between; of two of one name the later counts. What is
 * unknown, makes no sense or contradicts another is an error of the opening.
 *   survive=nothing|kill|power-loss  which accepted lines are not lost. nothing, the default: an
 *           end without inkstone_text_close loses the last flush_every_ms. kill: the end of the
 *           process, by SIGKILL, abort, exit or out of memory, loses none; the next opening brings
 *           them back. power-loss: nor does a power loss, but those since the last sync. Where the
 *           directory gives no way to find the lines again (NFS, FUSE), the library says so on
 *           stderr and goes on without; with kill! or power-loss! the opening fails there.
 *   sync_every_ms=N  with power-loss: how often the file is synced; 1000
 *   rotate_bytes=N  begin a new file before this one grows larger; never; at least 16384
 *   rotate_every_s=N  begin one at each multiple of this in UTC: 86400 is midnight; never
 *   keep_files=N  how many rotated files are kept; all
 *   keep_days=N  remove rotated files that are older; never
 *   compress=none|gzip  what is done with rotated files; none
 *   drop_after_us=N  how long a line may wait for room, before it is dropped; for ever. 0: never
 *           waits. A line longer than all buffers is always dropped.
 *   flush_every_ms=N  after how long at most a line is in the file, while the disk keeps up; 100
 *   close_ms=N  how long closing tries again on a disk that fails; 10000
 *   buffers_bytes=N  how much may wait for the disk; 8388608. It is memory.
 *   stage_directory=DIR  where lines survive a kill: a directory on tmpfs without a space in its
 *           name; /dev/shm
 *
 * WHAT IS PROMISED. No accepted line is lost (as survive= says), there twice, or broken. One that
 * was dropped or got an error is not in the log, and one in whose write the process was killed is
 * there as a whole or not at all.
 *
 * ERRORS are codes below 0. `error` is a place for a message, or NULL: the call puts NULL there, or
 * a text for free(), whatever was there before. What the log's threads find out later (a disk that
 * is full, say) is a line on stderr, once for each cause.
 *
 * THREADS. Any thread may make any call but inkstone_text_log_free at any time, on the same log. A
 * thread needs INKSTONE_TEXT_STACK_BYTES of stack for a call, and must not be cancelled in it.
 *
 * FORK. In a child of fork, every call on the parent's log is INKSTONE_TEXT_FORKED. The child may
 * open others, and this one when its parent has closed it.
 *
 * SIGNALS. No call is safe in a signal handler, also not in one for crashes: survive=kill is what
 * keeps the lines of a crash. A signal may interrupt a call; that changes nothing.
 *
 * THE END OF MAIN. Nothing is done by itself at exit: close the log before main returns. A
 * destructor of a static object, or an atexit handler, is too late to rely on it.
 *
 * ONE WRITER. A second opening of a log, in this process or another one, waits for the end of the
 * first, and then fails.
 */


#ifndef INKSTONE_TEXT_H
#define INKSTONE_TEXT_H

#include <stddef.h>
#include <stdint.h>

// The stack in bytes that a call needs.
#define INKSTONE_TEXT_STACK_BYTES 65536

// How a call ended. Errors are below 0; later versions may add some.
typedef enum {
    // The call did what it says. Of inkstone_text_write: the line is accepted.
    INKSTONE_TEXT_OK = 0,
    // Of inkstone_text_write alone: there was no room for the line within drop_after_us, and it is
    // lost. A notice in the log will count it.
    INKSTONE_TEXT_DROPPED = 1,
    // An argument makes no sense: a NULL, or a size that no memory has. Nothing was done.
    INKSTONE_TEXT_INVALID = -1,
    // The log is closed, or is being closed.
    INKSTONE_TEXT_CLOSED = -2,
    // This process was forked after the log was opened. Nothing was done.
    INKSTONE_TEXT_FORKED = -3,
    // The time was over before everything was in the file. It goes on.
    INKSTONE_TEXT_TIMED_OUT = -4,
    // Lines could not be written, or not be made durable. The message says why.
    INKSTONE_TEXT_IO = -5,
    // A bug of the library, which ended at this call, with a line on stderr.
    INKSTONE_TEXT_PANICKED = -6,
} inkstone_text_code;

// A log that was opened.
typedef struct inkstone_text_log inkstone_text_log;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Opens the log whose current file is `path`, and appends what a killed process has left. The
// directory is made if it is missing, but none above it. `options` is a text such as
// "survive=kill rotate_bytes=67108864 keep_files=10", or NULL for the defaults; OPTIONS above has
// all of them. If another writer has the log, the call waits for its end, for close_ms and two
// seconds.
//
// Returns the log, for inkstone_text_log_free, or NULL.
inkstone_text_log *inkstone_text_open(const char *path, const char *options, char **error);

// Puts one line of `bytes` bytes. INKSTONE_TEXT_OK: it is accepted. INKSTONE_TEXT_DROPPED: it is
// lost, and nothing of it is in the log. The call copies the line, without a system call while
// there is room. Without room it waits until there is some, or for drop_after_us at most.
//
// One call is one line: it stays whole, whatever bytes it has, and lines of all threads have one
// order. No newline is added: `line` ends with one. If it does not, the next line follows on the
// same line of the file, or at the head of the next file; after a kill it may begin a new one.
inkstone_text_code inkstone_text_write(const inkstone_text_log *log,
                                       const void *line,
                                       size_t bytes);

// Waits until every line that was accepted before is in the file (on the medium, with
// survive=power-loss), for `wait_ms` at most. Lines need no flush to get there, nor to survive a
// kill. An earlier sync that failed is an error of every flush.
inkstone_text_code inkstone_text_flush(const inkstone_text_log *log,
                                       uint64_t wait_ms,
                                       char **error);

// Has the file opened anew, by its name, before lines that are put after this call are written:
// for a program that has moved the file away, such as logrotate. Lines put before may be in either
// file. It does not wait.
inkstone_text_code inkstone_text_reopen(const inkstone_text_log *log);

// Takes no more lines, and waits until every accepted line is in the file (on the medium, with
// survive=power-loss): for a slow disk as long as it takes, for one that fails close_ms. From now
// on all calls but inkstone_text_log_free are INKSTONE_TEXT_CLOSED, also those of other threads
// that wait for room. The handle stays until inkstone_text_log_free.
//
// INKSTONE_TEXT_IO: the message says how many accepted lines are not in the file; with
// survive=kill the next opening appends them.
inkstone_text_code inkstone_text_close(const inkstone_text_log *log, char **error);

// Frees a log, once, when no other call uses it. One that is open is closed first; what goes wrong
// then is a line on stderr. In a forked child it only frees. NULL is nothing.
void inkstone_text_log_free(inkstone_text_log *log);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* INKSTONE_TEXT_H */
