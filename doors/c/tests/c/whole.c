/* Every function that bad_use.c and callbacks.c do not use in order: DIRECTORY is a place for
 * logs. */
#include "check.h"

#if INKSTONE_VERSION_NUMBER < 1000 || INKSTONE_VERSION_NUMBER / 1000000 != INKSTONE_VERSION_MAJOR
#error "a version as a number"
#endif

#include <sys/uio.h>
#include <unistd.h>

static char place[4096];

static const char *in(const char *directory, const char *name) {
    snprintf(place, sizeof place, "%s/%s", directory, name);
    return place;
}

static inkstone_options *every_option(void) {
    inkstone_options *options = inkstone_options_new();
    static const char *const all[][2] = {
        {"begin_at", "100"},
        {"create", "true"},
        {"create_parents", "false"},
        {"disk_budget_bytes", "67108864"},
        {"expect_durable", "0"},
        {"file_mode", "0640"},
        {"record_bytes_max", "65536"},
        {"segment_bytes", "1048576"},
        {"slow_commit_us", "2000000"},
        {"access", "buffered"},
        {"buffer_bytes", "131072"},
        {"durability", "fdatasync"},
        {"free_segments_max", "1"},
        {"own_thread", "true"},
        {"pad_groups", "true"},
        {"preparation", "fallocate"},
        {"tail_bytes", "262144"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) set(options, all[i][0], all[i][1]);
    return options;
}

static void says(inkstone_code code, char **text, const char *words) {
    OK(code);
    if (strstr(*text, words) == NULL) {
        fprintf(stderr, "\"%s\" is not in: %s\n", words, *text);
        exit(1);
    }
    inkstone_text_free(*text);
    *text = NULL;
}

static void append_in_every_way(inkstone_log *log) {
    inkstone_pending pending;
    uint64_t lsn;
    OK(inkstone_append(log, "one", 3, &pending, &error));
    CHECK(pending.lsn == 100 && pending.first_lsn == 100);
    OK(inkstone_wait(&pending, &error));
    CHECK(inkstone_durable(log) == 100);
    struct iovec parts[3] = {{(void *)"t", 1}, {NULL, 0}, {(void *)"wo", 2}};
    OK(inkstone_append_parts(log, (const inkstone_bytes *)parts, 3, &pending, &error));
    inkstone_let_go(&pending);
    CHECK(pending.log == NULL);
    OK(inkstone_wait_durable(log, 101, UINT64_MAX, &error));
    const inkstone_bytes batch[3] = {{"three", 5}, {NULL, 0}, {"five", 4}};
    OK(inkstone_append_batch(log, batch, 3, &pending, &error));
    CHECK(pending.first_lsn == 102 && pending.lsn == 104);
    OK(inkstone_wait(&pending, &error));
    OK(inkstone_try_append(log, "six", 3, &pending, &error));
    OK(inkstone_wait(&pending, &error));
    OK(inkstone_append_unwaited(log, "seven", 5, &lsn, &error));
    CHECK(lsn == 106);
    OK(inkstone_sync(log, &lsn, &error));
    CHECK(lsn == 106);
    OK(inkstone_append_durable(log, "eight", 5, &lsn, &error));
    CHECK(lsn == 107 && inkstone_last(log) == 107 && inkstone_first(log) == 100);
    CHECK(inkstone_head_first(log) == 100);
}

static void read_in_every_way(const inkstone_reader *reader) {
    static const char *const wanted[] = {"one",  "two", "three", "",
                                         "five", "six", "seven", "eight"};
    inkstone_cursor *cursor;
    inkstone_record record;
    inkstone_bytes bytes;
    CHECK(inkstone_reader_first(reader) == 100 && inkstone_reader_durable(reader) == 107);
    OK(inkstone_reader_end_of_log(reader, &error));
    OK(inkstone_cursor_new(reader, 100, &cursor, &error));
    for (uint64_t i = 0; i < 8; i++) {
        CHECK(inkstone_cursor_next_lsn(cursor) == 100 + i);
        OK(i % 2 ? inkstone_cursor_next(cursor, &record, &error)
                 : inkstone_cursor_next_within(cursor, 1000000, &record, &error));
        CHECK(record.lsn == 100 + i && record.data != NULL && record.size == strlen(wanted[i]));
        CHECK(memcmp(record.data, wanted[i], record.size) == 0);
        OK(inkstone_reader_get(reader, 100 + i, &bytes, &error));
        CHECK(bytes.data != NULL && bytes.size == strlen(wanted[i]));
        CHECK(memcmp(bytes.data, wanted[i], bytes.size) == 0);
        inkstone_bytes_free(&bytes);
        CHECK(bytes.data == NULL && bytes.size == 0);
    }
    QUIET(inkstone_cursor_next(cursor, &record, &error), INKSTONE_NOT_YET);
    CHECK(inkstone_cursor_seek(cursor, 104) == INKSTONE_OK);
    CHECK(inkstone_cursor_next_lsn(cursor) == 104);
    inkstone_cursor_free(cursor);
}

/* A consumer stores its place and ends; records before the place are cut; the consumer begins there
 * again, in this process or in the next. */
static void a_consumer_restarts(const inkstone_reader *beside, inkstone_log *log) {
    inkstone_reader *within;
    inkstone_cursor *cursor;
    inkstone_record record;
    uint64_t number;
    OK(inkstone_cursor_new(beside, 105, &cursor, &error));
    OK(inkstone_cursor_next(cursor, &record, &error));
    const inkstone_place place = inkstone_cursor_place(cursor);
    CHECK(place.lsn == 106 && place.cuts == 1);
    inkstone_cursor_free(cursor);
    OK(inkstone_truncate_after(log, 103, &error));
    OK(inkstone_append_durable(log, "another", 7, &number, &error));
    OK(inkstone_append_durable(log, "another", 7, &number, &error));
    CHECK(number == 105);
    OK(inkstone_reader_of(log, &within, &error));
    const inkstone_reader *readers[] = {beside, within};
    for (int i = 0; i < 2; i++) {
        OK(inkstone_cursor_from(readers[i], place, &cursor, &error));
        CHECK(inkstone_cursor_next(cursor, &record, &error) == INKSTONE_TRUNCATED_AFTER);
        CHECK(inkstone_error_lsn(error, &number) && number == 104);
        FAILS(inkstone_error_code(error), INKSTONE_TRUNCATED_AFTER, "resume at LSN 104");
        OK(inkstone_cursor_next(cursor, &record, &error));
        CHECK(record.lsn == 104 && record.size == 7);
        CHECK(inkstone_cursor_place(cursor).cuts == 2);
        inkstone_cursor_free(cursor);
        const inkstone_place of_another = {104, 9};
        OK(inkstone_cursor_from(readers[i], of_another, &cursor, &error));
        FAILS(inkstone_cursor_next(cursor, &record, &error), INKSTONE_INVALID, "it is another log");
        inkstone_cursor_free(cursor);
    }
    inkstone_reader_free(within);
    CHECK(inkstone_cursor_place(NULL).lsn == 0);
}

/* A reader as in another process sees what the writer posts: from then on no record is shown that
 * is gone. */
static void cut_under_a_reader(inkstone_log *log, const char *directory) {
    inkstone_reader *reader;
    inkstone_cursor *early, *late, *fresh;
    inkstone_record record;
    inkstone_bytes bytes;
    uint64_t number;
    OK(inkstone_reader_open(directory, NULL, &reader, &error));
    OK(inkstone_cursor_new(reader, 101, &early, &error));
    OK(inkstone_cursor_next(early, &record, &error));
    OK(inkstone_cursor_new(reader, 106, &late, &error));
    OK(inkstone_cursor_next(late, &record, &error));
    OK(inkstone_reader_get(reader, 106, &bytes, &error));
    inkstone_bytes_free(&bytes);
    OK(inkstone_truncate_after(log, 104, &error));
    OK(inkstone_append_durable(log, "another", 7, &number, &error));
    CHECK(number == 105);
    CHECK(inkstone_cursor_next(late, &record, &error) == INKSTONE_TRUNCATED_AFTER);
    CHECK(inkstone_error_lsn(error, &number) && number == 105);
    FAILS(inkstone_error_code(error), INKSTONE_TRUNCATED_AFTER, "resume at LSN 105");
    OK(inkstone_cursor_new(reader, 105, &fresh, &error));
    OK(inkstone_cursor_next(fresh, &record, &error));
    CHECK(record.lsn == 105 && record.size == 7);
    a_consumer_restarts(reader, log);
    OK(inkstone_truncate_before(log, 103, &error));
    FAILS(inkstone_cursor_next(early, &record, &error), INKSTONE_TRUNCATED_BEFORE, "LSN 102");
    CHECK(inkstone_cursor_seek(fresh, 102) == INKSTONE_OK);
    FAILS(inkstone_cursor_next(fresh, &record, &error), INKSTONE_TRUNCATED_BEFORE, "LSN 102");
    inkstone_cursor_free(early);
    inkstone_cursor_free(late);
    inkstone_cursor_free(fresh);
    inkstone_reader_free(reader);
}

/* A producer that never waits is told that the buffers are full; what it was told is durable all
 * the same, and nothing else is there. */
static void a_full_log_is_busy(const char *directory) {
    static char record[60000];
    inkstone_options *options = small();
    inkstone_log *log;
    inkstone_pending pending;
    uint64_t last = 0;
    int busy = 0;
    set(options, "segment_bytes", "1048576");
    set(options, "record_bytes_max", "65536");
    set(options, "buffer_bytes", "65536");
    OK(inkstone_open(in(directory, "busy"), options, &log, &error));
    inkstone_options_free(options);
    /* Two buffers of one record each, and a disk: memory is faster. */
    for (int i = 0; i < 1000000 && (busy < 20 || last <= 2); i++) {
        const inkstone_code code =
            inkstone_try_append(log, record, sizeof record, &pending, &error);
        if (code == INKSTONE_BUSY) {
            CHECK(pending.log == NULL && inkstone_error_is_retryable(error));
            FAILS(code, INKSTONE_BUSY, "try again later");
            busy++;
            usleep(100);
        } else {
            OK(code);
            CHECK(pending.lsn == ++last);
            inkstone_let_go(&pending);
        }
    }
    CHECK(busy >= 20 && last > 2);
    OK(inkstone_sync(log, &last, &error));
    CHECK(inkstone_durable(log) == last && inkstone_last(log) == last);
    inkstone_log_free(log);
}

/* A batch has the limit of a record: each of its records counts with 24 bytes more, rounded up to
 * 8. */
static void a_batch_is_as_large_as_the_largest_record(const char *directory) {
    enum { MOST = 1 << 16 };
    static char bytes[MOST];
    inkstone_options *options = small();
    inkstone_log *log;
    inkstone_pending pending;
    set(options, "segment_bytes", "1048576");
    set(options, "record_bytes_max", "65536");
    set(options, "buffer_bytes", "131072");
    OK(inkstone_open(in(directory, "batch"), options, &log, &error));
    inkstone_options_free(options);
    /* 32, and MOST - 56 + 24. */
    inkstone_bytes batch[2] = {{bytes, 1}, {bytes, MOST - 56}};
    OK(inkstone_append_batch(log, batch, 2, &pending, &error));
    OK(inkstone_wait(&pending, &error));
    batch[1].size++;
    FAILS(inkstone_append_batch(log, batch, 2, &pending, &error), INKSTONE_TOO_LARGE,
          "record_bytes_max");
    CHECK(pending.log == NULL && inkstone_last(log) == 2);
    inkstone_log_free(log);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    a_full_log_is_busy(arguments[1]);
    a_batch_is_as_large_as_the_largest_record(arguments[1]);
    CHECK(inkstone_abi_version() == INKSTONE_ABI_VERSION);
    CHECK(strcmp(inkstone_version(), INKSTONE_VERSION) == 0);
    CHECK(strcmp(inkstone_code_name(INKSTONE_NO_ROOM), "no room") == 0);
    inkstone_options *options = every_option();
    inkstone_log *log;
    inkstone_reader *reader, *outside;
    char *text = NULL;
    char copy[5000];
    bool is_intact = false;
    uint64_t number = 0;
    OK(inkstone_open(in(arguments[1], "whole"), options, &log, &error));
    says(inkstone_recovery_json(log, &text, &error), &text,
         "{\"text\":\"created\",\"created\":true,\"clean\":");
    says(inkstone_choice_text(log, &text, &error), &text, "fallocate");
    append_in_every_way(log);
    says(inkstone_stats_json(log, &text, &error), &text, "{\"records\":8,\"record_bytes\":");
    OK(inkstone_reader_of(log, &reader, &error));
    says(inkstone_reader_recovery_json(reader, &text, &error), &text, "null");
    read_in_every_way(reader);

    OK(inkstone_verify(place, &is_intact, NULL, &error));
    CHECK(is_intact);
    says(inkstone_verify(place, &is_intact, &text, &error), &text,
         "\"intact\":true,\"verdict\":\"end\"");
    OK(inkstone_keep_bytes(place, 1, &number, &error));
    CHECK(number == 100);
    OK(inkstone_keep_seconds(place, 3600, &number, &error));
    CHECK(number == 100);
    /* Outside of this process the last records are seen when they are promised. */
    for (bool is_promised = false; !is_promised; usleep(10000)) {
        OK(inkstone_verify(place, NULL, &text, &error));
        is_promised = strstr(text, "\"promise\":107,") != NULL;
        inkstone_text_free(text);
    }
    snprintf(copy, sizeof copy, "%s copied", place);
    OK(inkstone_copy(place, copy, NULL, &number, &error));
    CHECK(number == 8);
    INVALID(inkstone_copy(place, copy, NULL, NULL, &error), "");
    OK(inkstone_reader_open(copy, NULL, &outside, &error));
    says(inkstone_reader_recovery_json(outside, &text, &error), &text, "closed cleanly at LSN 107");
    read_in_every_way(outside);
    inkstone_reader_free(outside);

    cut_under_a_reader(log, place);
    CHECK(inkstone_first(log) == 103 && inkstone_last(log) == 105);
    OK(inkstone_close(log, &error));
    inkstone_reader_free(reader);
    inkstone_log_free(log);
    inkstone_options_free(options);

    options = small();
    set(options, "periodic_us", "1000");
    OK(inkstone_open(place, options, &log, &error));
    inkstone_options_free(options);
    says(inkstone_recovery_json(log, &text, &error), &text, "closed cleanly at LSN 105");
    inkstone_log_free(log);
    puts("every function did what it says");
    return 0;
}
