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
    inkstone_options *o = inkstone_options_new();
    CHECK(inkstone_options_set_segment_bytes(o, 1 << 20) == INKSTONE_OK);
    CHECK(inkstone_options_set_record_bytes_max(o, 1 << 16) == INKSTONE_OK);
    OK(inkstone_options_set(o, "buffer_bytes", "131072", &error));
    OK(inkstone_options_set(o, "tail_bytes", "262144", &error));
    CHECK(inkstone_options_set_create(o, true) == INKSTONE_OK);
    CHECK(inkstone_options_set_expect_durable(o, 0) == INKSTONE_OK);
    CHECK(inkstone_options_set_begin_at(o, 100) == INKSTONE_OK);
    OK(inkstone_options_set(o, "pad_groups", "true", &error));
    CHECK(inkstone_options_set_own_thread(o, true) == INKSTONE_OK);
    OK(inkstone_options_set(o, "linger_us", "300", &error));
    OK(inkstone_options_set(o, "idle_us", "50000", &error));
    OK(inkstone_options_set(o, "free_segments_max", "1", &error));
    OK(inkstone_options_set(o, "prepare_ahead", "true", &error));
    CHECK(inkstone_options_set_disk_budget_bytes(o, 64 << 20) == INKSTONE_OK);
    CHECK(inkstone_options_set_slow_commit_us(o, 2000000) == INKSTONE_OK);
    CHECK(inkstone_options_set_file_mode(o, 0640) == INKSTONE_OK);
    OK(inkstone_options_set(o, "yields", "4", &error));
    OK(inkstone_options_set(o, "preparation", "fallocate", &error));
    OK(inkstone_options_set(o, "access", "buffered", &error));
    OK(inkstone_options_set(o, "durability", "fdatasync", &error));
    OK(inkstone_options_check(o, &error));
    return o;
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
    const inkstone_parts in_parts[2] = {{batch, 3}, {NULL, 0}};
    OK(inkstone_append_batch_parts(log, in_parts, 2, &pending, &error));
    OK(inkstone_wait(&pending, &error));
    OK(inkstone_try_append(log, "eight", 5, &pending, &error));
    OK(inkstone_wait(&pending, &error));
    OK(inkstone_try_append_parts(log, batch, 1, &pending, &error));
    OK(inkstone_wait(&pending, &error));
    OK(inkstone_append_unwaited(log, "nine", 4, &lsn, &error));
    CHECK(lsn == 109);
    OK(inkstone_sync(log, &lsn, &error));
    CHECK(lsn == 109);
    OK(inkstone_append_durable(log, "ten", 3, &lsn, &error));
    CHECK(lsn == 110 && inkstone_last(log) == 110 && inkstone_first(log) == 100);
    CHECK(inkstone_head_first(log) == 100);
}

static void read_in_every_way(const inkstone_reader *reader) {
    static const char *const wanted[] = {"one", "two", "three", "", "five", "threefive",
                                         "", "eight", "three", "nine", "ten"};
    inkstone_cursor *cursor;
    inkstone_record record;
    inkstone_bytes bytes;
    CHECK(inkstone_reader_first(reader) == 100 && inkstone_reader_durable(reader) == 110);
    OK(inkstone_reader_end_of_log(reader, &error));
    OK(inkstone_cursor_new(reader, 100, &cursor, &error));
    for (uint64_t i = 0; i < 11; i++) {
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
    OK(inkstone_cursor_new(reader, 108, &late, &error));
    OK(inkstone_cursor_next(late, &record, &error));
    OK(inkstone_reader_get(reader, 108, &bytes, &error));
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
    inkstone_options *options = inkstone_options_small();
    inkstone_log *log;
    inkstone_pending pending;
    uint64_t last = 0;
    int busy = 0;
    CHECK(inkstone_options_set_segment_bytes(options, 1 << 20) == INKSTONE_OK);
    CHECK(inkstone_options_set_record_bytes_max(options, 1 << 16) == INKSTONE_OK);
    OK(inkstone_options_set(options, "buffer_bytes", "65536", &error));
    OK(inkstone_open(in(directory, "busy"), options, &log, &error));
    inkstone_options_free(options);
    /* Two buffers of one record each, and a disk: memory is faster. */
    for (int i = 0; i < 1000000 && (busy < 20 || last <= 2); i++) {
        const inkstone_bytes part = {record, sizeof record};
        const inkstone_code code =
            i % 2 ? inkstone_try_append(log, record, sizeof record, &pending, &error)
                  : inkstone_try_append_parts(log, &part, 1, &pending, &error);
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

/* A batch may take as much of the log as the largest record: 24 bytes more for each record, rounded
 * up to 8. */
static void a_batch_is_as_large_as_the_largest_record(const char *directory) {
    enum { MOST = 1 << 16 };
    static char bytes[MOST];
    inkstone_options *options = inkstone_options_small();
    inkstone_log *log;
    inkstone_pending pending;
    CHECK(inkstone_options_set_segment_bytes(options, 1 << 20) == INKSTONE_OK);
    CHECK(inkstone_options_set_record_bytes_max(options, MOST) == INKSTONE_OK);
    OK(inkstone_options_set(options, "buffer_bytes", "131072", &error));
    OK(inkstone_open(in(directory, "batch"), options, &log, &error));
    inkstone_options_free(options);
    /* 32 and MOST - 32 + 24: as the largest record. */
    inkstone_bytes batch[2] = {{bytes, 1}, {bytes, MOST - 32}};
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
    says(inkstone_stats_json(log, &text, &error), &text, "{\"records\":11,\"record_bytes\":");
    says(inkstone_stats_prometheus(log, "whole", &text, &error), &text,
         "inkstone_records_total{log=\"whole\"} 11\n");
    OK(inkstone_reader_of(log, &reader, &error));
    says(inkstone_reader_recovery_json(reader, &text, &error), &text, "null");
    read_in_every_way(reader);

    OK(inkstone_look(place, &is_intact, NULL, &error));
    CHECK(is_intact);
    says(inkstone_verify(place, &is_intact, &text, &error), &text,
         "\"intact\":true,\"verdict\":\"end\"");
    OK(inkstone_keep_records(place, 3, &number, &error));
    CHECK(number == 108);
    OK(inkstone_keep_bytes(place, 1, &number, &error));
    CHECK(number == 100);
    OK(inkstone_keep_seconds(place, 3600, &number, &error));
    CHECK(number == 100);
    /* Outside of this process the last records are seen when they are promised. */
    for (bool is_promised = false; !is_promised; usleep(10000)) {
        OK(inkstone_look(place, NULL, &text, &error));
        is_promised = strstr(text, "\"promise\":110,") != NULL;
        inkstone_text_free(text);
    }
    snprintf(copy, sizeof copy, "%s copied", place);
    OK(inkstone_copy(place, copy, NULL, &number, &error));
    CHECK(number == 11);
    INVALID(inkstone_copy(place, copy, NULL, NULL, &error), "");
    OK(inkstone_reader_open(copy, NULL, &outside, &error));
    says(inkstone_reader_recovery_json(outside, &text, &error), &text, "closed cleanly at LSN 110");
    read_in_every_way(outside);
    inkstone_reader_free(outside);

    cut_under_a_reader(log, place);
    CHECK(inkstone_first(log) == 103 && inkstone_last(log) == 105);
    OK(inkstone_close(log, &error));
    inkstone_reader_free(reader);
    inkstone_log_free(log);
    inkstone_options_free(options);

    options = inkstone_options_small();
    CHECK(inkstone_options_set_periodic_us(options, 1000) == INKSTONE_OK);
    OK(inkstone_open(place, options, &log, &error));
    inkstone_options_free(options);
    says(inkstone_recovery_json(log, &text, &error), &text, "closed cleanly at LSN 105");
    inkstone_log_free(log);
    puts("every function did what it says");
    return 0;
}
