/* Bad use that the library can see is an error that says what is wrong, and breaks nothing:
 * DIRECTORY is a place for logs. */
#include "check.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char place[4096];

static const char *in(const char *directory, const char *name) {
    snprintf(place, sizeof place, "%s/%s", directory, name);
    return place;
}

static void never(void *context, uint64_t lsn, const inkstone_error *outcome) {
    (void)context, (void)lsn, (void)outcome;
    CHECK(!"a callback that was refused is not called");
}

static void null_handles(void) {
    uint64_t number = 7;
    bool truth = true;
    char *text = (char *)8;
    inkstone_pending pending = {(const inkstone_log *)8, 1, 1, 1};
    inkstone_bytes bytes = {"x", 1};
    inkstone_record record;
    inkstone_reader *reader = (inkstone_reader *)8;
    inkstone_cursor *cursor = (inkstone_cursor *)8;

    INVALID(inkstone_close(NULL, &error), "log is NULL");
    INVALID(inkstone_append(NULL, "x", 1, &pending, &error), "log is NULL");
    CHECK(pending.log == NULL);
    INVALID(inkstone_append_unwaited(NULL, "x", 1, NULL, &error), "log is NULL");
    INVALID(inkstone_append_durable(NULL, "x", 1, NULL, &error), "log is NULL");
    INVALID(inkstone_try_append(NULL, "x", 1, &pending, &error), "log is NULL");
    INVALID(inkstone_append_parts(NULL, &bytes, 1, &pending, &error), "log is NULL");
    INVALID(inkstone_append_batch(NULL, &bytes, 1, &pending, &error), "log is NULL");
    INVALID(inkstone_wait(NULL, &error), "pending is NULL");
    INVALID(inkstone_wait(&pending, &error), "pending.log is NULL");
    INVALID(inkstone_on_durable(NULL, never, NULL, &error), "pending is NULL");
    INVALID(inkstone_on_durable(&pending, never, NULL, &error), "pending.log is NULL");
    INVALID(inkstone_sync(NULL, &number, &error), "log is NULL");
    INVALID(inkstone_wait_durable(NULL, 1, 0, &error), "log is NULL");
    INVALID(inkstone_on_watermark(NULL, never, NULL, &error), "log is NULL");
    CHECK(inkstone_cursor_durable(NULL) == 0);
    INVALID(inkstone_truncate_before(NULL, 1, &error), "log is NULL");
    INVALID(inkstone_truncate_after(NULL, 1, &error), "log is NULL");
    INVALID(inkstone_recovery_json(NULL, &text, &error), "log is NULL");
    CHECK(text == NULL);
    INVALID(inkstone_choice_text(NULL, &text, &error), "log is NULL");
    INVALID(inkstone_stats_json(NULL, &text, &error), "log is NULL");
    INVALID(inkstone_reader_of(NULL, &reader, &error), "log is NULL");
    CHECK(reader == NULL);
    INVALID(inkstone_reader_open(NULL, NULL, &reader, &error), "path is NULL");
    INVALID(inkstone_reader_end_of_log(NULL, &error), "reader is NULL");
    INVALID(inkstone_reader_recovery_json(NULL, &text, &error), "reader is NULL");
    INVALID(inkstone_reader_get(NULL, 1, &bytes, &error), "reader is NULL");
    CHECK(bytes.data == NULL && bytes.size == 0);
    INVALID(inkstone_cursor_new(NULL, 1, &cursor, &error), "reader is NULL");
    CHECK(cursor == NULL);
    INVALID(inkstone_cursor_next(NULL, &record, &error), "cursor is NULL");
    CHECK(record.data == NULL);
    INVALID(inkstone_cursor_next_within(NULL, 0, &record, &error), "cursor is NULL");
    CHECK(inkstone_cursor_seek(NULL, 1) == INKSTONE_INVALID);
    INVALID(inkstone_verify(NULL, &truth, &text, &error), "path is NULL");
    CHECK(!truth && text == NULL);
    INVALID(inkstone_copy(NULL, "x", NULL, &number, &error), "from is NULL");
    CHECK(number == 0);
    INVALID(inkstone_copy("x", NULL, NULL, &number, &error), "to is NULL");
    INVALID(inkstone_keep_bytes(NULL, 1, &number, &error), "path is NULL");
    INVALID(inkstone_keep_bytes("x", 1, NULL, &error), "first is NULL");
    INVALID(inkstone_keep_seconds(NULL, 1, &number, &error), "path is NULL");

    CHECK(inkstone_first(NULL) == 0 && inkstone_durable(NULL) == 0);
    CHECK(inkstone_last(NULL) == 0 && inkstone_head_first(NULL) == 0);
    CHECK(inkstone_reader_first(NULL) == 0 && inkstone_reader_durable(NULL) == 0);
    CHECK(inkstone_cursor_next_lsn(NULL) == 0);
    CHECK(inkstone_event_get_kind(NULL) == INKSTONE_EVENT_OTHER);
    CHECK(inkstone_event_error(NULL) == NULL);
    CHECK(inkstone_event_text(NULL)[0] == 0);
    CHECK(inkstone_error_code(NULL) == INKSTONE_OK && inkstone_error_message(NULL)[0] == 0);
    CHECK(inkstone_error_path(NULL) == NULL && inkstone_error_os(NULL) == 0);
    CHECK(!inkstone_error_offset(NULL, &number) && !inkstone_error_lsn(NULL, NULL));
    CHECK(!inkstone_error_is_retryable(NULL) && inkstone_error_advice(NULL)[0] == 0);

    inkstone_error_free(NULL), inkstone_options_free(NULL), inkstone_log_free(NULL);
    inkstone_reader_free(NULL), inkstone_cursor_free(NULL);
    inkstone_text_free(NULL), inkstone_let_go(NULL), inkstone_bytes_free(NULL);
    inkstone_bytes_free(&bytes);
    /* Without a place for the error the code says it all. */
    CHECK(inkstone_close(NULL, NULL) == INKSTONE_INVALID);
}

static void openings(const char *directory) {
    inkstone_log *log = (inkstone_log *)8, *second = (inkstone_log *)8;
    inkstone_reader *reader;
    INVALID(inkstone_open(NULL, NULL, &log, &error), "path is NULL");
    CHECK(log == NULL);
    INVALID(inkstone_open("", NULL, &log, &error), "path is empty");
    INVALID(inkstone_open(directory, NULL, NULL, &error), "log is NULL");

    FILE *file = fopen(in(directory, "file"), "w");
    CHECK(file != NULL && fclose(file) == 0);
    CHECK(inkstone_open(in(directory, "file"), NULL, &log, &error) == INKSTONE_IO);
    CHECK(log == NULL && strcmp(inkstone_error_path(error), place) == 0);
    FAILS(inkstone_error_code(error), INKSTONE_IO, "it is not a directory");
    static char long_name[300];
    memset(long_name, 'x', sizeof long_name - 1);
    CHECK(inkstone_open(in(directory, long_name), NULL, &log, &error) == INKSTONE_IO);
    CHECK(inkstone_error_os(error) == ENAMETOOLONG);
    CHECK(strcmp(inkstone_error_path(error), place) == 0);
    FAILS(inkstone_error_code(error), INKSTONE_IO, "File name too long");

    inkstone_options *options = inkstone_options_new();
    set(options, "create", "false");
    FAILS(inkstone_open(in(directory, "none"), options, &log, &error), INKSTONE_NO_LOG,
          "there is no log");
    FAILS(inkstone_verify(place, NULL, NULL, &error), INKSTONE_NO_LOG, "there is no log");
    CHECK(mkdir(in(directory, "empty"), 0700) == 0);
    FAILS(inkstone_open(place, options, &log, &error), INKSTONE_NO_LOG, "there is no log");
    FAILS(inkstone_verify(place, NULL, NULL, &error), INKSTONE_NO_LOG, "there is no log");
    FAILS(inkstone_reader_open(in(directory, "none"), NULL, &reader, &error), INKSTONE_NO_LOG,
          "there is no log");
    set(options, "create", "true");
    set(options, "segment_bytes", "100000");
    INVALID(inkstone_open(in(directory, "none"), options, &log, &error), "segment_bytes 100000");
    INVALID(inkstone_options_set(options, "access", "sideways", &error),
            "access sideways: it must be one of buffered, direct");
    INVALID(inkstone_options_set(options, "access", NULL, &error), "value is NULL");
    INVALID(inkstone_options_set(options, NULL, "direct", &error), "name is NULL");
    INVALID(inkstone_options_set(options, "acces", "direct", &error),
            "there is no option acces: there are begin_at, create,");
    INVALID(inkstone_options_set(options, "periodic_us", "-1", &error),
            "periodic_us -1: it must be a whole number from 0 that 64 bits hold");
    INVALID(inkstone_options_set(options, "size_multiple", "4294967296", &error),
            "from 0 that 32 bits hold");
    INVALID(inkstone_options_set(options, "pad_groups", "1", &error),
            "pad_groups 1: it must be true or false");
    INVALID(inkstone_options_set(options, "file_mode", "0x180", &error),
            "file_mode 0x180: it must be permissions in octal");
    INVALID(inkstone_options_set(NULL, "preparation", "zeros", &error), "options is NULL");
    INVALID(inkstone_options_set(options, "durability", "\xff", &error), "durability");
    OK(inkstone_options_set(options, "durability", "none", &error));
    inkstone_options_free(options);
    CHECK(inkstone_options_set_listener(NULL, NULL, NULL, NULL) == INKSTONE_INVALID);

    options = small();
    OK(inkstone_open(in(directory, "twice"), options, &log, &error));
    FAILS(inkstone_open(place, options, &second, &error), INKSTONE_LOCKED, "locked by");
    CHECK(second == NULL);
    inkstone_log_free(log);
    OK(inkstone_open(place, options, &log, &error));
    inkstone_log_free(log);

    /* A path is bytes. */
    OK(inkstone_open(in(directory, "bytes \xff\xfe"), options, &log, &error));
    inkstone_log_free(log);
    struct stat found;
    CHECK(stat(place, &found) == 0 && S_ISDIR(found.st_mode));
    inkstone_options_free(options);
}

// An append that fails leaves nothing pending, whatever was there before.
#define REFUSED(call, text)                                                                        \
    do {                                                                                           \
        pending = (inkstone_pending){log, 7, 7, 0};                                                \
        FAILS(call, INKSTONE_INVALID, text);                                                       \
        CHECK(pending.log == NULL && pending.lsn == 0);                                            \
    } while (0)

static void records(const char *directory) {
    inkstone_options *options = small();
    inkstone_log *log;
    inkstone_pending pending, copy;
    uint64_t number;
    static char large[40000];
    OK(inkstone_open(in(directory, "records"), options, &log, &error));
    REFUSED(inkstone_append(log, NULL, 1, &pending, &error), "data is NULL");
    REFUSED(inkstone_append(log, "x", SIZE_MAX, &pending, &error), "more than memory");
    INVALID(inkstone_append(log, "x", 1, NULL, &error), "pending is NULL");
    CHECK(inkstone_append(log, large, sizeof large, &pending, &error) == INKSTONE_TOO_LARGE);
    CHECK(pending.log == NULL);
    FAILS(inkstone_error_code(error), INKSTONE_TOO_LARGE, "record_bytes_max");
    uint64_t lsn = 7;
    CHECK(inkstone_append_durable(log, large, sizeof large, &lsn, NULL) == INKSTONE_TOO_LARGE);
    CHECK(lsn == 0);
    lsn = 7;
    CHECK(inkstone_append_unwaited(log, NULL, 1, &lsn, NULL) == INKSTONE_INVALID && lsn == 0);
    lsn = 7;
    CHECK(inkstone_sync(NULL, &lsn, NULL) == INKSTONE_INVALID && lsn == 0);
    // A record in parts is as large as in one piece.
    const inkstone_bytes whole = {large, 32769};
    FAILS(inkstone_append_parts(log, &whole, 1, &pending, &error), INKSTONE_TOO_LARGE,
          "of 32769 bytes");
    inkstone_bytes parts[2] = {{"a", 1}, {NULL, 1}};
    REFUSED(inkstone_append_parts(log, parts, 2, &pending, &error), "parts[1].data is NULL");
    REFUSED(inkstone_append_batch(log, parts, 2, &pending, &error), "records[1].data is NULL");
    parts[1] = (inkstone_bytes){"b", SIZE_MAX};
    REFUSED(inkstone_append_parts(log, parts, 2, &pending, &error), "parts[1].size");
    REFUSED(inkstone_append_parts(log, NULL, 2, &pending, &error), "parts is NULL");
    REFUSED(inkstone_append_parts(log, parts, SIZE_MAX, &pending, &error), "more than memory");
    REFUSED(inkstone_append_batch(log, NULL, 0, &pending, &error), "the batch is empty");
    CHECK(inkstone_last(log) == 0);

    OK(inkstone_append(log, NULL, 0, &pending, &error));
    INVALID(inkstone_on_durable(&pending, NULL, NULL, &error), "callback is NULL");
    INVALID(inkstone_on_watermark(log, NULL, NULL, &error), "callback is NULL");
    copy = pending;
    OK(inkstone_wait(&pending, &error));
    CHECK(pending.log == NULL && pending.lsn == 1);
    INVALID(inkstone_wait(&pending, &error), "already waited for this record or let it go");
    inkstone_let_go(&pending);
    OK(inkstone_wait(&copy, &error)); /* A copy is not seen; it breaks nothing. */
    FAILS(inkstone_truncate_before(log, 9, &error), INKSTONE_NOT_YET, "LSN 9");
    FAILS(inkstone_truncate_after(log, 9, &error), INKSTONE_NOT_YET, "LSN 9");
    QUIET(inkstone_wait_durable(log, 2, 1000, &error), INKSTONE_NOT_YET);
    INVALID(inkstone_stats_json(log, NULL, &error), "text is NULL");

    OK(inkstone_append(log, "kept", 4, &pending, &error));
    OK(inkstone_close(log, &error));
    OK(inkstone_close(log, &error));
    OK(inkstone_wait(&pending, &error));
    FAILS(inkstone_append(log, "x", 1, &pending, &error), INKSTONE_CLOSED, "closed");
    FAILS(inkstone_append_durable(log, "x", 1, &number, &error), INKSTONE_CLOSED, "closed");
    FAILS(inkstone_try_append(log, "x", 1, &pending, &error), INKSTONE_CLOSED, "closed");
    FAILS(inkstone_sync(log, NULL, &error), INKSTONE_CLOSED, "closed");
    FAILS(inkstone_truncate_before(log, 1, &error), INKSTONE_CLOSED, "closed");
    FAILS(inkstone_wait_durable(log, 3, UINT64_MAX, &error), INKSTONE_CLOSED, "closed");
    inkstone_log_free(log);
    inkstone_options_free(options);
}

static void readers(const char *directory) {
    inkstone_options *options = small();
    inkstone_log *log;
    inkstone_reader *reader;
    inkstone_cursor *cursor, *ahead;
    inkstone_record record;
    inkstone_bytes bytes;
    uint64_t number;
    OK(inkstone_open(in(directory, "readers"), options, &log, &error));
    inkstone_options_free(options);
    for (int i = 0; i < 9; i++) OK(inkstone_append_unwaited(log, "x", 1, NULL, &error));
    OK(inkstone_sync(log, &number, &error));
    INVALID(inkstone_reader_of(log, NULL, &error), "reader is NULL");
    OK(inkstone_reader_of(log, &reader, &error));
    INVALID(inkstone_reader_get(reader, 1, NULL, &error), "bytes is NULL");
    CHECK(inkstone_reader_get(reader, 10, &bytes, &error) == INKSTONE_NOT_YET);
    CHECK(inkstone_error_is_retryable(error));
    CHECK(inkstone_error_lsn(error, &number) && number == 9 && !inkstone_error_offset(error, NULL));
    FAILS(inkstone_error_code(error), INKSTONE_NOT_YET, "there is no durable LSN 10");
    INVALID(inkstone_cursor_new(reader, 1, NULL, &error), "cursor is NULL");
    /* What a failed append leaves in *lsn is no record's. */
    INVALID(inkstone_reader_get(reader, 0, &bytes, &error), "no record has LSN 0");
    OK(inkstone_cursor_new(reader, 0, &cursor, &error));
    INVALID(inkstone_cursor_next(cursor, &record, &error), "no record has LSN 0");
    CHECK(inkstone_cursor_seek(cursor, 1) == INKSTONE_OK);
    OK(inkstone_cursor_new(reader, 8, &ahead, &error));
    INVALID(inkstone_cursor_next(cursor, NULL, &error), "record is NULL");
    OK(inkstone_cursor_next(cursor, &record, &error));
    CHECK(record.lsn == 1 && record.size == 1 && *(const char *)record.data == 'x');
    OK(inkstone_truncate_before(log, 4, &error));
    CHECK(inkstone_cursor_next(cursor, &record, &error) == INKSTONE_TRUNCATED_BEFORE);
    CHECK(record.data == NULL);
    CHECK(inkstone_error_lsn(error, &number) && number == 4);
    FAILS(inkstone_error_code(error), INKSTONE_TRUNCATED_BEFORE, "LSN 4");
    FAILS(inkstone_reader_get(reader, 1, &bytes, &error), INKSTONE_TRUNCATED_BEFORE, "LSN 1");
    FAILS(inkstone_truncate_after(log, 2, &error), INKSTONE_TRUNCATED_BEFORE, "LSN");
    OK(inkstone_truncate_after(log, 5, &error));
    CHECK(inkstone_cursor_next(ahead, &record, &error) == INKSTONE_TRUNCATED_AFTER);
    CHECK(inkstone_error_lsn(error, &number) && number == 6);
    FAILS(inkstone_error_code(error), INKSTONE_TRUNCATED_AFTER, "resume at LSN 6");
    QUIET(inkstone_cursor_next(ahead, &record, &error), INKSTONE_NOT_YET);
    QUIET(inkstone_cursor_next_within(ahead, 1000, &record, &error), INKSTONE_NOT_YET);
    CHECK(record.data == NULL && record.size == 0 && record.lsn == 0);
    OK(inkstone_close(log, &error));
    FAILS(inkstone_reader_end_of_log(reader, &error), INKSTONE_CLOSED, "closed");
    FAILS(inkstone_cursor_next_within(ahead, UINT64_MAX, &record, &error), INKSTONE_CLOSED,
          "closed");
    /* The log first, its readers later. */
    inkstone_log_free(log);
    CHECK(inkstone_cursor_seek(cursor, 5) == INKSTONE_OK);
    OK(inkstone_cursor_next(cursor, &record, &error));
    inkstone_reader_free(reader);
    CHECK(record.lsn == 5 && *(const char *)record.data == 'x');
    inkstone_cursor_free(cursor);
    inkstone_cursor_free(ahead);
}

static void a_forked_child(const char *directory) {
    inkstone_options *options = small();
    inkstone_log *log;
    inkstone_reader *reader;
    inkstone_pending pending;
    inkstone_bytes bytes;
    OK(inkstone_open(in(directory, "forked"), options, &log, &error));
    OK(inkstone_append_durable(log, "before", 6, NULL, &error));
    OK(inkstone_reader_of(log, &reader, &error));
    OK(inkstone_append(log, "pending", 7, &pending, &error));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(inkstone_append_durable(log, "x", 1, NULL, &error), INKSTONE_FORKED,
              "forked after the log was opened");
        FAILS(inkstone_wait(&pending, &error), INKSTONE_FORKED, "forked");
        FAILS(inkstone_sync(log, NULL, &error), INKSTONE_FORKED, "forked");
        FAILS(inkstone_wait_durable(log, 9, UINT64_MAX, &error), INKSTONE_FORKED, "forked");
        FAILS(inkstone_truncate_before(log, 2, &error), INKSTONE_FORKED, "forked");
        FAILS(inkstone_reader_get(reader, 1, &bytes, &error), INKSTONE_FORKED, "forked");
        FAILS(inkstone_close(log, &error), INKSTONE_FORKED, "forked");
        inkstone_log *own;
        FAILS(inkstone_open(place, options, &own, &error), INKSTONE_LOCKED, "locked by");
        inkstone_reader_free(reader);
        inkstone_log_free(log);
        /* The parent's threads are not here; what they held is lost, and valgrind would say so at
         * an exit. */
        execlp("true", "true", (char *)NULL);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(inkstone_wait(&pending, &error));
    OK(inkstone_append_durable(log, "after", 5, NULL, &error));
    CHECK(inkstone_durable(log) == 3);
    inkstone_reader_free(reader);
    inkstone_log_free(log);
    inkstone_options_free(options);
}

static void no_room(const char *directory) {
    const struct rlimit limit = {8192, RLIM_INFINITY};
    struct rlimit before;
    inkstone_log *log;
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0 && setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(inkstone_open(in(directory, "no room"), NULL, &log, &error) == INKSTONE_NO_ROOM);
    CHECK(log == NULL);
    CHECK(inkstone_error_is_retryable(error) && inkstone_error_path(error) != NULL);
    FAILS(inkstone_error_code(error), INKSTONE_NO_ROOM, "raise the limit on the size of files");
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
}

static int poisoned_callbacks, poisoned_events;

static void lost(void *context, uint64_t lsn, const inkstone_error *outcome) {
    CHECK(context == &poisoned_callbacks && lsn == 2);
    CHECK(inkstone_error_code(outcome) == INKSTONE_POISONED);
    poisoned_callbacks++;
}

static void hear(void *context, const inkstone_event *event) {
    (void)context;
    if (inkstone_event_get_kind(event) != INKSTONE_EVENT_POISONED) return;
    CHECK(inkstone_error_code(inkstone_event_error(event)) == INKSTONE_POISONED);
    poisoned_events++;
}

/* A file may not be written any more: the log is poisoned, and says so everywhere. */
static void poisoned(const char *directory) {
    const struct rlimit limit = {4096, RLIM_INFINITY};
    struct rlimit before;
    inkstone_options *options = small();
    inkstone_log *log;
    inkstone_reader *reader;
    inkstone_pending pending;
    inkstone_bytes bytes;
    uint64_t number;
    static char record[8000];
    set(options, "own_thread", "false");
    CHECK(inkstone_options_set_listener(options, hear, NULL, NULL) == INKSTONE_OK);
    OK(inkstone_open(in(directory, "poisoned"), options, &log, &error));
    inkstone_options_free(options);
    OK(inkstone_append_durable(log, "durable", 7, NULL, &error));
    OK(inkstone_append(log, record, sizeof record, &pending, &error));
    OK(inkstone_on_durable(&pending, lost, &poisoned_callbacks, &error));
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0 && setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(inkstone_sync(log, NULL, &error) == INKSTONE_POISONED);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(inkstone_error_os(error) == EFBIG && inkstone_error_lsn(error, &number) && number == 1);
    CHECK(strncmp(inkstone_error_path(error), place, strlen(place)) == 0);
    CHECK(inkstone_error_offset(error, &number));
    FAILS(inkstone_error_code(error), INKSTONE_POISONED, "the log is poisoned");
    CHECK(poisoned_callbacks == 1 && poisoned_events == 1);
    FAILS(inkstone_append(log, "x", 1, &pending, &error), INKSTONE_POISONED,
          "records up to LSN 1 are durable");
    OK(inkstone_reader_of(log, &reader, &error));
    FAILS(inkstone_reader_end_of_log(reader, &error), INKSTONE_POISONED, "poisoned");
    OK(inkstone_reader_get(reader, 1, &bytes, &error));
    CHECK(bytes.size == 7);
    inkstone_bytes_free(&bytes);
    inkstone_reader_free(reader);
    FAILS(inkstone_close(log, &error), INKSTONE_POISONED, "poisoned");
    inkstone_log_free(log);
    OK(inkstone_open(place, NULL, &log, &error));
    CHECK(inkstone_last(log) >= 1);
    inkstone_log_free(log);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    error = (inkstone_error *)8;
    null_handles();
    openings(arguments[1]);
    records(arguments[1]);
    readers(arguments[1]);
    a_forked_child(arguments[1]);
    no_room(arguments[1]);
    poisoned(arguments[1]);
    puts("every misuse that can be seen was refused");
    return 0;
}
