/* Everything that needs much stack, on a thread that has as much as inkstone.h asks for, or as the
 * second argument says (in bytes). */
#include "check.h"

#include <pthread.h>

static void called(void *context, uint64_t lsn, const inkstone_error *outcome) {
    *(uint64_t *)context = outcome == NULL ? lsn : 0;
}

static void *uses(void *path) {
    inkstone_options *options = small();
    inkstone_log *log;
    inkstone_reader *reader;
    inkstone_cursor *cursor;
    inkstone_record record;
    inkstone_pending pending;
    uint64_t lsn, durable = 0;
    char *text, other[4096];
    /* Twice: the second time there is something to recover. */
    for (int turn = 0; turn < 2; turn++) {
        OK(inkstone_open(path, options, &log, &error));
        /* Through several segments. */
        static const char large[20000];
        for (int i = 0; i < 10; i++)
            OK(inkstone_append_durable(log, large, sizeof large, &lsn, &error));
        OK(inkstone_append(log, "called", 6, &pending, &error));
        lsn = pending.lsn;
        OK(inkstone_on_durable(&pending, called, &durable, &error));
        OK(inkstone_sync(log, NULL, &error));
        CHECK(inkstone_append_durable(log, large, 1 << 20, NULL, &error) == INKSTONE_TOO_LARGE);
        inkstone_error_free(error);
        OK(inkstone_reader_of(log, &reader, &error));
        OK(inkstone_cursor_new(reader, inkstone_first(log), &cursor, &error));
        while (inkstone_cursor_next(cursor, &record, &error) == INKSTONE_OK)
            CHECK(record.size == 6 || record.size == sizeof large);
        CHECK(error == NULL && inkstone_cursor_next_lsn(cursor) == lsn + 1);
        inkstone_cursor_free(cursor);
        inkstone_reader_free(reader);
        OK(inkstone_stats_json(log, &text, &error));
        inkstone_text_free(text);
        OK(inkstone_truncate_before(log, 8, &error));
        OK(inkstone_truncate_after(log, lsn - 1, &error));
        OK(inkstone_close(log, &error));
        CHECK(durable == lsn);
        inkstone_log_free(log);
    }
    inkstone_options_free(options);
    bool is_intact;
    OK(inkstone_verify(path, &is_intact, &text, &error));
    CHECK(is_intact);
    inkstone_text_free(text);
    snprintf(other, sizeof other, "%s/copy", (const char *)path);
    OK(inkstone_copy(path, other, NULL, NULL, &error));
    OK(inkstone_open(path, NULL, &log, &error));
    OK(inkstone_append_durable(log, "after", 5, NULL, &error));
    inkstone_log_free(log);
    return path;
}

int main(int count, char **arguments) {
    pthread_attr_t attributes;
    pthread_t thread;
    void *end = NULL;
    CHECK(count == 2 || count == 3);
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, count == 3 ? (size_t)atoi(arguments[2])
                                                            : INKSTONE_STACK_BYTES) == 0);
    CHECK(pthread_create(&thread, &attributes, uses, arguments[1]) == 0);
    CHECK(pthread_join(thread, &end) == 0 && end == arguments[1]);
    puts("the stack was enough");
    return 0;
}
