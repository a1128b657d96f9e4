/* Callbacks and listeners from C, and 64 threads: each callback is called once, in order, with
 * nothing of the log locked. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static char place[4096];

static const char *in(const char *directory, const char *name) {
    snprintf(place, sizeof place, "%s/%s", directory, name);
    return place;
}

/* Checks use one error object in a program of one thread. */
static void well(inkstone_code code) { CHECK(code == INKSTONE_OK); }

static void told(void *context, uint64_t lsn, const inkstone_error *outcome) {
    CHECK(outcome == NULL && lsn > 0);
    atomic_fetch_add((atomic_uint *)context, 1);
}

/* A callback that uses the log in every way that would hang if something of it were locked. */
struct chain {
    inkstone_log *log;
    atomic_uint called;
    uint64_t last;
};

static void next(void *context, uint64_t lsn, const inkstone_error *outcome) {
    struct chain *chain = context;
    CHECK(outcome == NULL && lsn > chain->last);
    chain->last = lsn;
    CHECK(inkstone_durable(chain->log) >= lsn && inkstone_first(chain->log) == 1);
    char *text;
    well(inkstone_stats_json(chain->log, &text, NULL));
    inkstone_text_free(text);
    well(inkstone_sync(chain->log, NULL, NULL));
    if (atomic_fetch_add(&chain->called, 1) < 20) {
        inkstone_pending pending;
        well(inkstone_append(chain->log, "again", 5, &pending, NULL));
        well(inkstone_on_durable(&pending, next, chain, NULL));
    }
}

static void each_once_and_with_nothing_locked(const char *directory) {
    inkstone_options *options = small();
    struct chain chain = {NULL, 0, 0};
    inkstone_pending pending;
    atomic_uint called = 0;
    OK(inkstone_open(in(directory, "callbacks"), options, &chain.log, &error));
    OK(inkstone_append(chain.log, "first", 5, &pending, &error));
    OK(inkstone_on_durable(&pending, next, &chain, &error));
    CHECK(pending.log == NULL);
    for (int i = 0; i < 1000; i++) {
        OK(inkstone_append(chain.log, "many", 4, &pending, &error));
        OK(inkstone_on_durable(&pending, told, &called, &error));
    }
    while (atomic_load(&chain.called) < 21) usleep(1000);
    /* One whose outcome is known is called at once; closing leaves none uncalled. */
    OK(inkstone_append(chain.log, "last", 4, &pending, &error));
    inkstone_pending twin = pending;
    OK(inkstone_wait(&pending, &error));
    OK(inkstone_on_durable(&twin, told, &called, &error));
    OK(inkstone_append(chain.log, "closed", 6, &pending, &error));
    OK(inkstone_on_durable(&pending, told, &called, &error));
    OK(inkstone_close(chain.log, &error));
    CHECK(atomic_load(&called) == 1002 && atomic_load(&chain.called) == 21);
    inkstone_log_free(chain.log);
    CHECK(atomic_load(&called) == 1002);
    inkstone_options_free(options);
}

struct watch {
    inkstone_log *log;
    atomic_uint called;
    _Atomic uint64_t watermark;
    _Atomic int32_t code;
};

static void moved(void *context, uint64_t watermark, const inkstone_error *outcome) {
    struct watch *watch = context;
    atomic_store(&watch->watermark, watermark);
    atomic_store(&watch->code, inkstone_error_code(outcome));
    /* Nothing of the log is locked, and the next change is the next call's. */
    if (atomic_fetch_add(&watch->called, 1) == 0) {
        CHECK(inkstone_durable(watch->log) >= watermark);
        well(inkstone_on_watermark(watch->log, moved, watch, NULL));
    }
}

static void a_change_of_the_watermark_is_told_once(const char *directory) {
    inkstone_options *options = small();
    struct watch watch = {NULL, 0, 0, INKSTONE_OK};
    inkstone_reader *reader;
    inkstone_cursor *cursor;
    OK(inkstone_open(in(directory, "watermark"), options, &watch.log, &error));
    OK(inkstone_reader_of(watch.log, &reader, &error));
    OK(inkstone_cursor_new(reader, 1, &cursor, &error));
    CHECK(inkstone_cursor_durable(cursor) == 0);
    OK(inkstone_on_watermark(watch.log, moved, &watch, &error));
    CHECK(atomic_load(&watch.called) == 0);
    OK(inkstone_append_durable(watch.log, "one", 3, NULL, &error));
    CHECK(atomic_load(&watch.called) == 1 && atomic_load(&watch.watermark) == 1);
    OK(inkstone_append_durable(watch.log, "two", 3, NULL, &error));
    CHECK(atomic_load(&watch.called) == 2 && atomic_load(&watch.watermark) == 2);
    OK(inkstone_append_durable(watch.log, "three", 5, NULL, &error));
    CHECK(atomic_load(&watch.called) == 2 && inkstone_cursor_durable(cursor) == 3);
    OK(inkstone_on_watermark(watch.log, moved, &watch, &error));
    OK(inkstone_truncate_after(watch.log, 1, &error));
    CHECK(atomic_load(&watch.called) == 3 && atomic_load(&watch.watermark) == 1);
    CHECK(inkstone_cursor_durable(cursor) == 1);
    OK(inkstone_on_watermark(watch.log, moved, &watch, &error));
    CHECK(atomic_load(&watch.called) == 3 && atomic_load(&watch.code) == INKSTONE_OK);
    OK(inkstone_close(watch.log, &error));
    CHECK(atomic_load(&watch.called) == 4 && atomic_load(&watch.code) == INKSTONE_CLOSED);
    OK(inkstone_on_watermark(watch.log, moved, &watch, &error));
    CHECK(atomic_load(&watch.called) == 5 && atomic_load(&watch.watermark) == 1);
    inkstone_cursor_free(cursor);
    inkstone_reader_free(reader);
    inkstone_log_free(watch.log);
    inkstone_options_free(options);
}

struct heard {
    atomic_uint kinds[8];
    atomic_uint destroyed;
};

static void listen(void *context, const inkstone_event *event) {
    struct heard *heard = context;
    const inkstone_event_kind kind = inkstone_event_get_kind(event);
    CHECK(kind >= 0 && kind < 8 && inkstone_event_text(event)[0] != 0);
    CHECK((inkstone_event_error(event) != NULL) == (kind == INKSTONE_EVENT_POISONED));
    atomic_fetch_add(&heard->kinds[kind], 1);
}

static void destroyed(void *context) { atomic_fetch_add(&((struct heard *)context)->destroyed, 1); }

static void a_listener_is_told_and_destroyed_once(const char *directory) {
    static struct heard heard;
    inkstone_options *options = small();
    inkstone_log *log;
    static char record[20000];
    CHECK(inkstone_options_set_listener(options, NULL, &heard, destroyed) == INKSTONE_INVALID);
    CHECK(atomic_exchange(&heard.destroyed, 0) == 1);
    CHECK(inkstone_options_set_listener(options, listen, &heard, destroyed) == INKSTONE_OK);
    OK(inkstone_open(in(directory, "listener"), options, &log, &error));
    for (int i = 0; i < 4; i++)
        OK(inkstone_append_durable(log, record, sizeof record, NULL, &error));
    inkstone_options_free(options);
    CHECK(atomic_load(&heard.kinds[INKSTONE_EVENT_RECOVERED]) == 1);
    OK(inkstone_close(log, &error));
    /* A thread of the log seals segments; the close has waited for it. */
    CHECK(atomic_load(&heard.kinds[INKSTONE_EVENT_SEGMENT_SEALED]) == 1);
    CHECK(atomic_load(&heard.destroyed) == 0);
    inkstone_log_free(log);
    CHECK(atomic_load(&heard.destroyed) == 1);
}

enum { THREADS = 64, EACH = 50 };

static inkstone_log *shared;
static atomic_uint seen;

static void *append(void *context) {
    atomic_uint *called = context;
    for (int i = 0; i < EACH; i++) {
        inkstone_pending pending;
        uint64_t lsn = 0;
        switch (i % 3) {
        case 0:
            well(inkstone_append_durable(shared, "one", 3, &lsn, NULL));
            CHECK(lsn > 0 && inkstone_durable(shared) >= lsn);
            break;
        case 1:
            well(inkstone_append(shared, "two", 3, &pending, NULL));
            well(inkstone_wait(&pending, NULL));
            break;
        default:
            well(inkstone_append(shared, "three", 5, &pending, NULL));
            well(inkstone_on_durable(&pending, told, called, NULL));
        }
    }
    return NULL;
}

static void *follow(void *unused) {
    (void)unused;
    inkstone_reader *reader;
    inkstone_cursor *cursor;
    inkstone_record record;
    well(inkstone_reader_of(shared, &reader, NULL));
    well(inkstone_cursor_new(reader, 1, &cursor, NULL));
    inkstone_reader_free(reader);
    for (uint64_t lsn = 1; lsn <= THREADS * EACH; lsn++) {
        inkstone_code code;
        do code = inkstone_cursor_next_within(cursor, 1000000, &record, NULL);
        while (code == INKSTONE_NOT_YET);
        CHECK(code == INKSTONE_OK && record.lsn == lsn);
        CHECK((record.size == 3 || memcmp(record.data, "three", 5) == 0));
        atomic_fetch_add(&seen, 1);
    }
    inkstone_cursor_free(cursor);
    return NULL;
}

static void sixty_four_threads(const char *directory) {
    static atomic_uint called;
    pthread_t threads[THREADS], follower;
    OK(inkstone_open(in(directory, "threads"), NULL, &shared, &error));
    CHECK(pthread_create(&follower, NULL, follow, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, append, &called) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(pthread_join(follower, NULL) == 0);
    OK(inkstone_close(shared, &error));
    CHECK(atomic_load(&seen) == THREADS * EACH && atomic_load(&called) == THREADS * (EACH / 3));
    CHECK(inkstone_durable(shared) == THREADS * EACH);
    inkstone_log_free(shared);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    each_once_and_with_nothing_locked(arguments[1]);
    a_change_of_the_watermark_is_told_once(arguments[1]);
    a_listener_is_told_and_destroyed_once(arguments[1]);
    sixty_four_threads(arguments[1]);
    puts("each callback was called once");
    return 0;
}
