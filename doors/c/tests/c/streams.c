/* Streams: every function, bad use that can be seen, and a reader in another process. DIRECTORY is
 * a place for logs. */
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static char place[4096];

static const char *in(const char *directory, const char *name) {
    snprintf(place, sizeof place, "%s/%s", directory, name);
    return place;
}

static inkstone_options *of_streams(void) {
    inkstone_options *options = small();
    set(options, "section_bytes", "65536");
    set(options, "size_multiple", "2");
    set(options, "cache_bytes", "100000");
    INVALID(inkstone_options_set(options, "size_multiple", "two", &error), "a whole number");
    return options;
}

static void empty(inkstone_batch **batch) {
    inkstone_batch_free(*batch);
    *batch = inkstone_batch_new();
}

/* Applies a batch, waits for it and empties it. */
static void apply(const inkstone_streams *streams, inkstone_batch **batch, uint64_t *numbers) {
    inkstone_pending pending;
    OK(inkstone_streams_apply(streams, *batch, numbers, &pending, &error));
    OK(inkstone_wait(&pending, &error));
    empty(batch);
}

static void names(uint64_t stream, uint64_t number) {
    uint64_t is = 0;
    CHECK(inkstone_error_stream(error, &is) && is == stream);
    CHECK(inkstone_error_number(error, &is) && is == number);
}

static void has(const inkstone_streams_reader *reader, uint64_t stream, uint64_t number,
                const char *text) {
    inkstone_bytes bytes;
    OK(inkstone_streams_get(reader, stream, number, &bytes, &error));
    CHECK(bytes.size == strlen(text) && memcmp(bytes.data, text, bytes.size) == 0);
    inkstone_bytes_free(&bytes);
}

static void has_bounds(const inkstone_streams_reader *reader, uint64_t stream, uint64_t first,
                       uint64_t next) {
    uint64_t is_first, is_next;
    OK(inkstone_streams_bounds(reader, stream, &is_first, &is_next, &error));
    CHECK(is_first == first && is_next == next);
}

static void every_change(const char *directory) {
    inkstone_options *options = of_streams();
    inkstone_streams *streams, *second;
    inkstone_streams_reader *reader;
    inkstone_batch *batch = inkstone_batch_new();
    inkstone_pending pending;
    inkstone_bytes bytes;
    uint64_t numbers[3] = {9, 9, 9}, number, ids[4];
    size_t count;
    char *text;
    OK(inkstone_streams_open(in(directory, "changes"), options, &streams, &error));
    FAILS(inkstone_streams_open(place, options, &second, &error), INKSTONE_LOCKED, "locked by");
    OK(inkstone_streams_reader_of(streams, &reader, &error));

    CHECK(inkstone_batch_create(batch, 7, 1) == INKSTONE_OK);
    CHECK(inkstone_batch_create(batch, UINT64_MAX, 100) == INKSTONE_OK);
    inkstone_batch_create(batch, 0, 0);
    inkstone_batch_append(batch, 7, "one", 3);
    inkstone_batch_append(batch, UINT64_MAX, "other", 5);
    inkstone_batch_append_at(batch, 7, 2, NULL, 0);
    inkstone_batch_note(batch, 7, "a vote", 6);
    apply(streams, &batch, numbers);
    CHECK(numbers[0] == 1 && numbers[1] == 100 && numbers[2] == 2);
    has(reader, 7, 1, "one");
    has(reader, 7, 2, "");
    has(reader, UINT64_MAX, 100, "other");
    OK(inkstone_streams_note(reader, 7, &bytes, &error));
    CHECK(bytes.size == 6 && memcmp(bytes.data, "a vote", 6) == 0);
    inkstone_bytes_free(&bytes);
    OK(inkstone_streams_note(reader, 0, &bytes, &error));
    CHECK(bytes.size == 0);
    inkstone_bytes_free(&bytes);

    /* All of a batch or nothing of it; its errors name the stream and the number. */
    inkstone_batch_append(batch, 7, "x", 1);
    inkstone_batch_append_at(batch, 7, 9, "x", 1);
    CHECK(inkstone_streams_apply(streams, batch, numbers, &pending, &error) ==
          INKSTONE_OTHER_NUMBER);
    CHECK(pending.log == NULL);
    names(7, 4);
    FAILS(inkstone_error_code(error), INKSTONE_OTHER_NUMBER,
          "stream 7: the next record gets number 4");
    CHECK(numbers[0] == 0 && numbers[1] == 0);
    has_bounds(reader, 7, 1, 3);
    empty(&batch);
    INVALID(inkstone_streams_apply(streams, batch, NULL, &pending, &error), "the batch is empty");
    CHECK(inkstone_batch_append(batch, 7, NULL, 1) == INKSTONE_INVALID);
    CHECK(inkstone_batch_append(batch, 7, "x", 1) == INKSTONE_OK);
    INVALID(inkstone_streams_apply(streams, batch, NULL, &pending, &error),
            "change 1: data is NULL");
    empty(&batch);
    inkstone_batch_create(batch, 7, 1);
    FAILS(inkstone_streams_apply(streams, batch, NULL, &pending, &error), INKSTONE_EXISTS,
          "stream 7 is there already");
    empty(&batch);
    static char large[40000];
    inkstone_batch_note(batch, 7, large, 4000);
    FAILS(inkstone_streams_apply(streams, batch, NULL, &pending, &error), INKSTONE_TOO_LARGE,
          "a note of 4000 bytes");
    empty(&batch);
    FAILS(inkstone_streams_append(streams, 7, large, sizeof large, &number, &pending, &error),
          INKSTONE_TOO_LARGE, "record_bytes_max");
    CHECK(number == 0 && pending.log == NULL);
    CHECK(inkstone_streams_append(streams, 8, "x", 1, NULL, &pending, &error) ==
          INKSTONE_NO_STREAM);
    CHECK(inkstone_error_stream(error, &number) && number == 8);
    CHECK(!inkstone_error_number(error, NULL));
    FAILS(inkstone_error_code(error), INKSTONE_NO_STREAM, "there is no stream 8");

    /* A batch that is applied twice makes its changes twice. */
    inkstone_batch_append(batch, 7, "again", 5);
    OK(inkstone_streams_apply(streams, batch, NULL, &pending, &error));
    inkstone_let_go(&pending);
    OK(inkstone_streams_apply(streams, batch, &number, &pending, &error));
    CHECK(number == 4 && pending.log == inkstone_streams_log(streams));
    OK(inkstone_sync(inkstone_streams_log(streams), NULL, &error));
    CHECK(inkstone_durable(inkstone_streams_log(streams)) >= pending.lsn);
    inkstone_let_go(&pending);
    empty(&batch);
    has(reader, 7, 4, "again");

    inkstone_batch_truncate_before(batch, 7, 2);
    inkstone_batch_truncate_after(batch, 7, 3);
    apply(streams, &batch, NULL);
    has_bounds(reader, 7, 2, 4);
    CHECK(inkstone_streams_get(reader, 7, 1, &bytes, &error) == INKSTONE_TRUNCATED_BEFORE);
    CHECK(bytes.data == NULL);
    names(7, 2);
    FAILS(inkstone_error_code(error), INKSTONE_TRUNCATED_BEFORE,
          "stream 7 has no record 1: it begins at number 2");
    CHECK(inkstone_streams_get(reader, 7, 4, &bytes, &error) == INKSTONE_NOT_YET);
    CHECK(inkstone_error_is_retryable(error));
    names(7, 4);
    FAILS(inkstone_error_code(error), INKSTONE_NOT_YET, "stream 7");
    inkstone_batch_restart_at(batch, 7, UINT64_MAX - 1);
    inkstone_batch_remove(batch, 0);
    apply(streams, &batch, NULL);
    OK(inkstone_streams_append(streams, 7, "last", 4, &number, &pending, &error));
    CHECK(number == UINT64_MAX - 1);
    OK(inkstone_wait(&pending, &error));
    FAILS(inkstone_streams_append(streams, 7, "x", 1, NULL, &pending, &error), INKSTONE_USED_UP,
          "stream 7");
    FAILS(inkstone_streams_bounds(reader, 0, NULL, NULL, &error), INKSTONE_NO_STREAM,
          "there is no stream 0");

    OK(inkstone_streams_ids(reader, 0, ids, 4, &count, &error));
    CHECK(count == 2 && ids[0] == 7 && ids[1] == UINT64_MAX);
    OK(inkstone_streams_ids(reader, 8, ids, 1, &count, &error));
    CHECK(count == 1 && ids[0] == UINT64_MAX);
    OK(inkstone_streams_ids(reader, 0, NULL, 0, &count, &error));
    CHECK(count == 0);
    INVALID(inkstone_streams_ids(reader, 0, NULL, 1, &count, &error), "ids is NULL");
    OK(inkstone_streams_stats_json(streams, &text, &error));
    CHECK(strstr(text, "\"streams\":2,") != NULL);
    inkstone_text_free(text);

    OK(inkstone_streams_close(streams, &error));
    OK(inkstone_streams_close(streams, &error));
    FAILS(inkstone_streams_append(streams, UINT64_MAX, "x", 1, NULL, &pending, &error),
          INKSTONE_CLOSED, "closed");
    inkstone_streams_free(streams);
    /* The streams first, their readers later. */
    has(reader, UINT64_MAX, 100, "other");
    inkstone_streams_reader_free(reader);
    inkstone_batch_free(batch);

    inkstone_log *log;
    FAILS(inkstone_open(in(directory, "changes"), options, &log, &error), INKSTONE_OTHER_KIND,
          "a log of the kind STRM");
    CHECK(log == NULL);
    OK(inkstone_open(in(directory, "plain"), options, &log, &error));
    OK(inkstone_append_durable(log, "of somebody", 11, NULL, &error));
    inkstone_log_free(log);
    FAILS(inkstone_streams_open(place, options, &streams, &error), INKSTONE_OTHER_KIND,
          "a log of the kind plain");
    CHECK(streams == NULL);
    FAILS(inkstone_streams_reader_open(place, NULL, &reader, &error), INKSTONE_OTHER_KIND,
          "a log of the kind plain");
    FAILS(inkstone_streams_reader_open(in(directory, "none"), NULL, &reader, &error),
          INKSTONE_NO_LOG, "there is no log");
    set(options, "section_bytes", "1");
    INVALID(inkstone_streams_open(in(directory, "none"), options, &streams, &error),
            "section_bytes 1");
    inkstone_options_free(options);
}

static void null_handles(void) {
    inkstone_streams *streams = (inkstone_streams *)8;
    inkstone_streams_reader *reader = (inkstone_streams_reader *)8;
    inkstone_streams_cursor *cursor = (inkstone_streams_cursor *)8;
    inkstone_streams_record record;
    inkstone_batch *batch = inkstone_batch_new();
    inkstone_pending pending;
    inkstone_bytes bytes;
    size_t count = 7;
    char *text;
    INVALID(inkstone_streams_open(NULL, NULL, &streams, &error), "path is NULL");
    CHECK(streams == NULL);
    INVALID(inkstone_streams_open("x", NULL, NULL, &error), "streams is NULL");
    INVALID(inkstone_streams_close(NULL, &error), "streams is NULL");
    INVALID(inkstone_streams_append(NULL, 1, "x", 1, NULL, &pending, &error), "streams is NULL");
    INVALID(inkstone_streams_apply(NULL, batch, NULL, &pending, &error), "streams is NULL");
    CHECK(pending.log == NULL);
    INVALID(inkstone_streams_apply(NULL, NULL, NULL, NULL, &error), "pending is NULL");
    INVALID(inkstone_streams_stats_json(NULL, &text, &error), "streams is NULL");
    CHECK(text == NULL && inkstone_streams_log(NULL) == NULL);
    INVALID(inkstone_streams_reader_of(NULL, &reader, &error), "streams is NULL");
    CHECK(reader == NULL);
    INVALID(inkstone_streams_reader_open(NULL, NULL, &reader, &error), "path is NULL");
    INVALID(inkstone_streams_ids(NULL, 0, NULL, 0, &count, &error), "reader is NULL");
    CHECK(count == 0);
    INVALID(inkstone_streams_bounds(NULL, 1, NULL, NULL, &error), "reader is NULL");
    INVALID(inkstone_streams_note(NULL, 1, &bytes, &error), "reader is NULL");
    INVALID(inkstone_streams_get(NULL, 1, 1, &bytes, &error), "reader is NULL");
    CHECK(bytes.data == NULL);
    INVALID(inkstone_streams_get(NULL, 1, 1, NULL, &error), "bytes is NULL");
    INVALID(inkstone_streams_cursor_new(NULL, 1, 1, &cursor, &error), "reader is NULL");
    CHECK(cursor == NULL);
    INVALID(inkstone_streams_cursor_next(NULL, &record, &error), "cursor is NULL");
    INVALID(inkstone_streams_cursor_next_within(NULL, 0, &record, &error), "cursor is NULL");
    CHECK(record.data == NULL);
    CHECK(inkstone_batch_create(NULL, 1, 1) == INKSTONE_INVALID);
    CHECK(inkstone_batch_append(NULL, 1, "x", 1) == INKSTONE_INVALID);
    CHECK(inkstone_batch_append_at(NULL, 1, 1, "x", 1) == INKSTONE_INVALID);
    CHECK(inkstone_batch_note(NULL, 1, "x", 1) == INKSTONE_INVALID);
    CHECK(inkstone_batch_truncate_before(NULL, 1, 1) == INKSTONE_INVALID);
    CHECK(inkstone_batch_truncate_after(NULL, 1, 1) == INKSTONE_INVALID);
    CHECK(inkstone_batch_restart_at(NULL, 1, 1) == INKSTONE_INVALID);
    CHECK(inkstone_batch_remove(NULL, 1) == INKSTONE_INVALID);
    CHECK(!inkstone_error_stream(NULL, NULL) && !inkstone_error_number(NULL, NULL));
    inkstone_streams_free(NULL), inkstone_streams_reader_free(NULL);
    inkstone_streams_cursor_free(NULL);
    inkstone_batch_free(NULL), inkstone_batch_free(batch);
}

enum { STREAMS = 8, RECORDS = 200 };

static inkstone_streams *shared;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t called = PTHREAD_COND_INITIALIZER;
static int durable, called_back;

/* A callback that appends, with a callback of its own. */
static void appended(void *context, uint64_t lsn, const inkstone_error *outcome) {
    CHECK(outcome == NULL && lsn > 0);
    if (context != NULL) {
        inkstone_pending pending;
        CHECK(inkstone_streams_append(shared, STREAMS, "called", 6, NULL, &pending, NULL) ==
              INKSTONE_OK);
        CHECK(inkstone_on_durable(&pending, appended, NULL, NULL) == INKSTONE_OK);
    }
    pthread_mutex_lock(&lock);
    durable++;
    called_back += context != NULL;
    pthread_cond_signal(&called);
    pthread_mutex_unlock(&lock);
}

static void *writer(void *context) {
    const uint64_t stream = *(const uint64_t *)context;
    for (uint64_t i = 0; i < RECORDS; i++) {
        inkstone_pending pending;
        uint64_t number;
        CHECK(inkstone_streams_append(shared, stream, &i, sizeof i, &number, &pending, NULL) ==
              INKSTONE_OK);
        CHECK(number == i);
        CHECK(inkstone_on_durable(&pending, appended, i % 10 == 0 ? &lock : NULL, NULL) ==
              INKSTONE_OK);
    }
    return NULL;
}

static void follow(const inkstone_streams_reader *reader, uint64_t stream) {
    inkstone_streams_cursor *cursor;
    inkstone_streams_record record;
    CHECK(inkstone_streams_cursor_new(reader, stream, 0, &cursor, NULL) == INKSTONE_OK);
    for (uint64_t i = 0; i < RECORDS; i++) {
        CHECK(inkstone_streams_cursor_next_within(cursor, UINT64_MAX, &record, NULL) ==
              INKSTONE_OK);
        CHECK(record.number == i && record.size == sizeof i);
        CHECK(memcmp(record.data, &i, sizeof i) == 0);
    }
    inkstone_streams_cursor_free(cursor);
}

static void *follower(void *context) {
    inkstone_streams_reader *reader;
    CHECK(inkstone_streams_reader_of(shared, &reader, NULL) == INKSTONE_OK);
    follow(reader, *(const uint64_t *)context);
    inkstone_streams_reader_free(reader);
    return NULL;
}

/* Writers and followers of several streams at once, callbacks that call back, and another process
 * that follows. */
static void many_at_once(const char *directory) {
    inkstone_options *options = of_streams();
    inkstone_batch *batch = inkstone_batch_new();
    pthread_t threads[2 * STREAMS];
    uint64_t streams[STREAMS];
    OK(inkstone_streams_open(in(directory, "many"), options, &shared, &error));
    for (uint64_t i = 0; i <= STREAMS; i++) inkstone_batch_create(batch, i, 0);
    apply(shared, &batch, NULL);
    fflush(NULL);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        inkstone_streams_reader *reader;
        inkstone_pending pending;
        FAILS(inkstone_streams_append(shared, 0, "x", 1, NULL, &pending, &error), INKSTONE_FORKED,
              "forked");
        OK(inkstone_streams_reader_open(place, NULL, &reader, &error));
        follow(reader, 3);
        inkstone_streams_reader_free(reader);
        /* At an exit valgrind would speak of what the parent's threads hold. */
        execlp("true", "true", (char *)NULL);
        _exit(1);
    }
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = (uint64_t)i;
        CHECK(pthread_create(&threads[i], NULL, writer, &streams[i]) == 0);
        CHECK(pthread_create(&threads[STREAMS + i], NULL, follower, &streams[i]) == 0);
    }
    for (int i = 0; i < 2 * STREAMS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* A callback may come after a follower sees its record, and cannot append to closed streams.
       What the last of them appended is made durable, and called for, by the close. */
    pthread_mutex_lock(&lock);
    while (called_back < STREAMS * RECORDS / 10) pthread_cond_wait(&called, &lock);
    pthread_mutex_unlock(&lock);
    OK(inkstone_streams_close(shared, &error));
    inkstone_streams_free(shared);
    CHECK(durable == STREAMS * (RECORDS + RECORDS / 10));
    inkstone_batch_free(batch);
    inkstone_options_free(options);
}

/* A cursor beside a truncation, a removal and the end of the streams. */
static void cursors(const char *directory) {
    inkstone_options *options = of_streams();
    inkstone_streams *streams;
    inkstone_streams_reader *reader, *beside;
    inkstone_streams_cursor *cursor, *other;
    inkstone_streams_record record;
    inkstone_batch *batch = inkstone_batch_new();
    OK(inkstone_streams_open(in(directory, "cursors"), options, &streams, &error));
    inkstone_options_free(options);
    inkstone_batch_create(batch, 7, 1);
    apply(streams, &batch, NULL);
    OK(inkstone_streams_reader_of(streams, &reader, &error));
    OK(inkstone_streams_reader_open(place, NULL, &beside, &error));
    OK(inkstone_streams_cursor_new(reader, 7, 1, &cursor, &error));
    OK(inkstone_streams_cursor_new(beside, 7, 1, &other, &error));
    QUIET(inkstone_streams_cursor_next(cursor, &record, &error), INKSTONE_NOT_YET);
    QUIET(inkstone_streams_cursor_next_within(other, 1000, &record, &error), INKSTONE_NOT_YET);
    CHECK(record.data == NULL);
    inkstone_batch_append(batch, 7, "one", 3);
    inkstone_batch_append(batch, 7, "two", 3);
    apply(streams, &batch, NULL);
    OK(inkstone_streams_cursor_next_within(other, UINT64_MAX, &record, &error));
    CHECK(record.number == 1 && record.size == 3 && memcmp(record.data, "one", 3) == 0);
    inkstone_batch_restart_at(batch, 7, 9);
    inkstone_batch_append(batch, 7, "nine", 4);
    apply(streams, &batch, NULL);
    CHECK(inkstone_streams_cursor_next_within(cursor, UINT64_MAX, &record, &error) ==
          INKSTONE_TRUNCATED_BEFORE);
    names(7, 9);
    FAILS(inkstone_error_code(error), INKSTONE_TRUNCATED_BEFORE, "stream 7");
    inkstone_streams_cursor_free(cursor);
    OK(inkstone_streams_cursor_new(reader, 7, 9, &cursor, &error));
    OK(inkstone_streams_cursor_next(cursor, &record, &error));
    inkstone_streams_reader_free(reader);
    CHECK(record.number == 9 && memcmp(record.data, "nine", 4) == 0);
    inkstone_streams_cursor_free(other);
    OK(inkstone_streams_cursor_new(beside, 7, 9, &other, &error));
    OK(inkstone_streams_cursor_next_within(other, UINT64_MAX, &record, &error));
    CHECK(record.number == 9);
    inkstone_batch_remove(batch, 7);
    apply(streams, &batch, NULL);
    FAILS(inkstone_streams_cursor_next_within(cursor, UINT64_MAX, &record, &error),
          INKSTONE_NO_STREAM, "there is no stream 7");
    FAILS(inkstone_streams_cursor_next_within(other, UINT64_MAX, &record, &error),
          INKSTONE_NO_STREAM, "there is no stream 7");
    inkstone_batch_create(batch, 7, 1);
    inkstone_batch_append(batch, 7, "one", 3);
    inkstone_batch_append(batch, 7, "two", 3);
    apply(streams, &batch, NULL);
    for (int i = 0; i < 2; i++) {
        inkstone_streams_cursor *of = i == 0 ? cursor : other;
        CHECK(inkstone_streams_cursor_next_within(of, UINT64_MAX, &record, &error) ==
              INKSTONE_TRUNCATED_AFTER);
        names(7, 1);
        FAILS(inkstone_error_code(error), INKSTONE_TRUNCATED_AFTER, "goes on at 1");
        OK(inkstone_streams_cursor_next(of, &record, &error));
        OK(inkstone_streams_cursor_next(of, &record, &error));
        CHECK(record.number == 2 && memcmp(record.data, "two", 3) == 0);
    }
    inkstone_batch_truncate_after(batch, 7, 1);
    apply(streams, &batch, NULL);
    CHECK(inkstone_streams_cursor_next_within(cursor, UINT64_MAX, &record, &error) ==
          INKSTONE_TRUNCATED_AFTER);
    names(7, 2);
    FAILS(inkstone_error_code(error), INKSTONE_TRUNCATED_AFTER, "goes on at 2");
    OK(inkstone_streams_close(streams, &error));
    FAILS(inkstone_streams_cursor_next_within(cursor, UINT64_MAX, &record, &error), INKSTONE_CLOSED,
          "closed");
    inkstone_streams_free(streams);
    QUIET(inkstone_streams_cursor_next(cursor, &record, &error), INKSTONE_NOT_YET);
    FAILS(inkstone_streams_cursor_next_within(cursor, 0, &record, &error), INKSTONE_CLOSED,
          "closed");
    inkstone_streams_cursor_free(cursor), inkstone_streams_cursor_free(other);
    inkstone_streams_reader_free(beside), inkstone_batch_free(batch);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    error = (inkstone_error *)8;
    null_handles();
    every_change(arguments[1]);
    cursors(arguments[1]);
    many_at_once(arguments[1]);
    puts("streams do what they say");
    return 0;
}
