/*
 * What stands between Go and inkstone.h: each call gives its answers by value, so that C gets no
 * pointer to Go memory but the bytes of a record, for the time of the call. It owns nothing and
 * keeps nothing.
 */
#ifndef INKSTONE_GO_SHIM_H
#define INKSTONE_GO_SHIM_H

#include <inkstone.h>
#include <stdlib.h>

#if INKSTONE_ABI_VERSION != 1
#error "this Go package is for ABI 1 of libinkstone"
#endif

typedef struct {
    inkstone_code code;
    inkstone_error *error;
    uint64_t number;
} go_answer;

typedef struct {
    go_answer answer;
    inkstone_pending pending;
} go_appended;

static inline go_answer go_options_set(inkstone_options *options, const char *name,
                                       const char *value) {
    go_answer a = {0};
    a.code = inkstone_options_set(options, name, value, &a.error);
    return a;
}

typedef struct {
    go_answer answer;
    inkstone_log *log;
    inkstone_reader *reader;
    inkstone_cursor *cursor;
    inkstone_streams *streams;
    inkstone_streams_reader *streams_reader;
    inkstone_streams_cursor *streams_cursor;
} go_opened;

static inline go_opened go_open(const char *path, const inkstone_options *options) {
    go_opened o = {0};
    o.answer.code = inkstone_open(path, options, &o.log, &o.answer.error);
    return o;
}
static inline go_opened go_reader_open(const char *path, const inkstone_options *options) {
    go_opened o = {0};
    o.answer.code = inkstone_reader_open(path, options, &o.reader, &o.answer.error);
    return o;
}
static inline go_opened go_reader_of(const inkstone_log *log) {
    go_opened o = {0};
    o.answer.code = inkstone_reader_of(log, &o.reader, &o.answer.error);
    return o;
}
static inline go_opened go_cursor_new(const inkstone_reader *reader, uint64_t lsn) {
    go_opened o = {0};
    o.answer.code = inkstone_cursor_new(reader, lsn, &o.cursor, &o.answer.error);
    return o;
}
static inline go_opened go_cursor_from(const inkstone_reader *reader, uint64_t lsn, uint64_t cuts) {
    go_opened o = {0};
    const inkstone_place place = {lsn, cuts};
    o.answer.code = inkstone_cursor_from(reader, place, &o.cursor, &o.answer.error);
    return o;
}
static inline go_answer go_close(const inkstone_log *log) {
    go_answer a = {0};
    a.code = inkstone_close(log, &a.error);
    return a;
}
static inline go_answer go_sync(const inkstone_log *log) {
    go_answer a = {0};
    a.code = inkstone_sync(log, &a.number, &a.error);
    return a;
}
static inline go_answer go_truncate_before(const inkstone_log *log, uint64_t first) {
    go_answer a = {0};
    a.code = inkstone_truncate_before(log, first, &a.error);
    return a;
}
static inline go_answer go_truncate_after(const inkstone_log *log, uint64_t last) {
    go_answer a = {0};
    a.code = inkstone_truncate_after(log, last, &a.error);
    return a;
}

static inline go_appended go_append(const inkstone_log *log, const uint8_t *data, size_t size) {
    go_appended r = {0};
    r.answer.code = inkstone_append(log, data, size, &r.pending, &r.answer.error);
    return r;
}
static inline go_appended go_try_append(const inkstone_log *log, const uint8_t *data, size_t size) {
    go_appended r = {0};
    r.answer.code = inkstone_try_append(log, data, size, &r.pending, &r.answer.error);
    return r;
}
/* The records stand one after another in `data`; there is at least one. */
static inline go_appended go_append_batch(const inkstone_log *log, const uint8_t *data,
                                          const size_t *sizes, size_t count) {
    go_appended r = {0};
    inkstone_bytes few[32], *records = count <= 32 ? few : malloc(count * sizeof *records);
    if (!records) abort(); /* As Go does without memory. */
    for (size_t i = 0; i < count; i++) {
        records[i].data = data;
        records[i].size = sizes[i];
        data += sizes[i];
    }
    r.answer.code = inkstone_append_batch(log, records, count, &r.pending, &r.answer.error);
    if (records != few) free(records);
    return r;
}
static inline go_answer go_append_unwaited(const inkstone_log *log, const uint8_t *data,
                                           size_t size) {
    go_answer a = {0};
    a.code = inkstone_append_unwaited(log, data, size, &a.number, &a.error);
    return a;
}
static inline go_answer go_wait(inkstone_pending pending) {
    go_answer a = {0};
    a.code = inkstone_wait(&pending, &a.error);
    return a;
}
go_answer inkstone_go_on_durable(inkstone_pending pending, uintptr_t handle);
/* The callback comes if the code is INKSTONE_OK. */
go_answer inkstone_go_on_watermark(const inkstone_log *log, uintptr_t handle);
/* The handle is deleted when it is not needed any more, also if this fails. */
inkstone_code inkstone_go_set_listener(inkstone_options *options, uintptr_t handle);
/* The answer's number is the LSN, 0 if nothing was appended. The callback comes if the code is
 * INKSTONE_OK. */
go_answer inkstone_go_try_append_durable(const inkstone_log *log, const uint8_t *data, size_t size,
                                         uintptr_t handle);

typedef struct {
    go_answer answer;
    inkstone_bytes bytes;
    inkstone_record record;
    char *text;
} go_read;

static inline go_read go_get(const inkstone_reader *reader, uint64_t lsn) {
    go_read r = {0};
    r.answer.code = inkstone_reader_get(reader, lsn, &r.bytes, &r.answer.error);
    return r;
}
static inline void go_bytes_free(inkstone_bytes bytes) { inkstone_bytes_free(&bytes); }
static inline go_read go_cursor_next(inkstone_cursor *cursor) {
    go_read r = {0};
    r.answer.code = inkstone_cursor_next(cursor, &r.record, &r.answer.error);
    return r;
}
/* With a timeout of 0 it waits as little as inkstone_cursor_next, and tells that no more will
 * come. */
static inline go_read go_cursor_next_within(inkstone_cursor *cursor, uint64_t timeout_us) {
    go_read r = {0};
    r.answer.code = inkstone_cursor_next_within(cursor, timeout_us, &r.record, &r.answer.error);
    return r;
}
static inline go_answer go_end_of_log(const inkstone_reader *reader) {
    go_answer a = {0};
    a.code = inkstone_reader_end_of_log(reader, &a.error);
    return a;
}
static inline go_read go_reader_recovery(const inkstone_reader *reader) {
    go_read r = {0};
    r.answer.code = inkstone_reader_recovery_json(reader, &r.text, &r.answer.error);
    return r;
}
static inline go_read go_recovery(const inkstone_log *log) {
    go_read r = {0};
    r.answer.code = inkstone_recovery_json(log, &r.text, &r.answer.error);
    return r;
}
static inline go_read go_choice(const inkstone_log *log) {
    go_read r = {0};
    r.answer.code = inkstone_choice_text(log, &r.text, &r.answer.error);
    return r;
}
static inline go_read go_stats(const inkstone_log *log) {
    go_read r = {0};
    r.answer.code = inkstone_stats_json(log, &r.text, &r.answer.error);
    return r;
}
static inline go_read go_verify(const char *path) {
    go_read r = {0};
    r.answer.code = inkstone_verify(path, NULL, &r.text, &r.answer.error);
    return r;
}
static inline go_answer go_copy(const char *from, const char *to, const inkstone_options *options) {
    go_answer a = {0};
    a.code = inkstone_copy(from, to, options, &a.number, &a.error);
    return a;
}
typedef struct {
    bool has;
    uint64_t value;
} go_number;
static inline go_number go_error_offset(const inkstone_error *error) {
    go_number n = {0};
    n.has = inkstone_error_offset(error, &n.value);
    return n;
}
static inline go_number go_error_lsn(const inkstone_error *error) {
    go_number n = {0};
    n.has = inkstone_error_lsn(error, &n.value);
    return n;
}
static inline go_number go_error_stream(const inkstone_error *error) {
    go_number n = {0};
    n.has = inkstone_error_stream(error, &n.value);
    return n;
}
static inline go_number go_error_number(const inkstone_error *error) {
    go_number n = {0};
    n.has = inkstone_error_number(error, &n.value);
    return n;
}

/* Streams. */

typedef enum {
    GO_CREATE,
    GO_APPEND,
    GO_APPEND_AT,
    GO_NOTE,
    GO_TRUNCATE_BEFORE,
    GO_TRUNCATE_AFTER,
    GO_RESTART_AT,
    GO_REMOVE,
} go_kind;

/* A change of a batch; the bytes of the changes stand one after another. */
typedef struct {
    go_kind kind;
    uint64_t stream;
    uint64_t number;
    size_t size;
} go_change;

static inline go_opened go_streams_open(const char *path, const inkstone_options *options) {
    go_opened o = {0};
    o.answer.code = inkstone_streams_open(path, options, &o.streams, &o.answer.error);
    return o;
}
static inline go_answer go_streams_close(const inkstone_streams *streams) {
    go_answer a = {0};
    a.code = inkstone_streams_close(streams, &a.error);
    return a;
}
static inline go_appended go_streams_apply(const inkstone_streams *streams,
                                           const go_change *changes, size_t count,
                                           const uint8_t *data, uint64_t *numbers) {
    go_appended r = {0};
    inkstone_batch *batch = inkstone_batch_new();
    for (const go_change *c = changes; c < changes + count; c++) {
        switch (c->kind) {
        case GO_CREATE: inkstone_batch_create(batch, c->stream, c->number); break;
        case GO_APPEND: inkstone_batch_append(batch, c->stream, data, c->size); break;
        case GO_APPEND_AT:
            inkstone_batch_append_at(batch, c->stream, c->number, data, c->size);
            break;
        case GO_NOTE: inkstone_batch_note(batch, c->stream, data, c->size); break;
        case GO_TRUNCATE_BEFORE: inkstone_batch_truncate_before(batch, c->stream, c->number); break;
        case GO_TRUNCATE_AFTER: inkstone_batch_truncate_after(batch, c->stream, c->number); break;
        case GO_RESTART_AT: inkstone_batch_restart_at(batch, c->stream, c->number); break;
        case GO_REMOVE: inkstone_batch_remove(batch, c->stream); break;
        }
        if (c->size > 0) data += c->size; /* Without bytes it is NULL. */
    }
    r.answer.code = inkstone_streams_apply(streams, batch, numbers, &r.pending, &r.answer.error);
    inkstone_batch_free(batch);
    return r;
}
/* The answer's number is that of the record. */
static inline go_appended go_streams_append(const inkstone_streams *streams, uint64_t stream,
                                            const uint8_t *data, size_t size) {
    go_appended r = {0};
    r.answer.code = inkstone_streams_append(streams, stream, data, size, &r.answer.number,
                                            &r.pending, &r.answer.error);
    return r;
}
static inline go_read go_streams_stats(const inkstone_streams *streams) {
    go_read r = {0};
    r.answer.code = inkstone_streams_stats_json(streams, &r.text, &r.answer.error);
    return r;
}
static inline go_opened go_streams_reader_of(const inkstone_streams *streams) {
    go_opened o = {0};
    o.answer.code = inkstone_streams_reader_of(streams, &o.streams_reader, &o.answer.error);
    return o;
}
static inline go_opened go_streams_reader_open(const char *path, const inkstone_options *options) {
    go_opened o = {0};
    o.answer.code = inkstone_streams_reader_open(path, options, &o.streams_reader, &o.answer.error);
    return o;
}
static inline go_opened go_streams_cursor_new(const inkstone_streams_reader *reader,
                                              uint64_t stream, uint64_t number) {
    go_opened o = {0};
    o.answer.code =
        inkstone_streams_cursor_new(reader, stream, number, &o.streams_cursor, &o.answer.error);
    return o;
}
typedef struct {
    go_answer answer;
    uint64_t first, next;
    inkstone_streams_record record;
} go_found;

typedef struct {
    go_answer answer;
    uint64_t ids[64];
    size_t count;
} go_ids;

static inline go_found go_streams_bounds(const inkstone_streams_reader *reader, uint64_t stream) {
    go_found f = {0};
    f.answer.code = inkstone_streams_bounds(reader, stream, &f.first, &f.next, &f.answer.error);
    return f;
}
static inline go_ids go_streams_ids(const inkstone_streams_reader *reader, uint64_t from) {
    go_ids f = {0};
    f.answer.code = inkstone_streams_ids(reader, from, f.ids, 64, &f.count, &f.answer.error);
    return f;
}
static inline go_read go_streams_note(const inkstone_streams_reader *reader, uint64_t stream) {
    go_read r = {0};
    r.answer.code = inkstone_streams_note(reader, stream, &r.bytes, &r.answer.error);
    return r;
}
static inline go_read go_streams_get(const inkstone_streams_reader *reader, uint64_t stream,
                                     uint64_t number) {
    go_read r = {0};
    r.answer.code = inkstone_streams_get(reader, stream, number, &r.bytes, &r.answer.error);
    return r;
}
static inline go_found go_streams_cursor_next(inkstone_streams_cursor *cursor) {
    go_found f = {0};
    f.answer.code = inkstone_streams_cursor_next(cursor, &f.record, &f.answer.error);
    return f;
}
/* Without waiting, but it tells that no more will come. */
static inline go_found go_streams_cursor_follow(inkstone_streams_cursor *cursor) {
    go_found f = {0};
    f.answer.code = inkstone_streams_cursor_next_within(cursor, 0, &f.record, &f.answer.error);
    return f;
}

#endif
