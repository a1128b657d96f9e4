/* Passes the library's callbacks to Go. A context is the number of a cgo.Handle, never a pointer to
 * Go memory. */
#include "shim.h"
#include "_cgo_export.h"

static void told(void *context, uint64_t lsn, const inkstone_error *error) {
    (void)lsn;
    inkstoneGoDurable((uintptr_t)context, (inkstone_error *)error);
}

go_answer inkstone_go_on_durable(inkstone_pending pending, uintptr_t handle) {
    go_answer a = {0};
    a.code = inkstone_on_durable(&pending, told, (void *)handle, &a.error);
    return a;
}

go_answer inkstone_go_try_append_durable(const inkstone_log *log, const uint8_t *data, size_t size,
                                         uintptr_t handle) {
    go_appended r = go_try_append(log, data, size);
    if (r.answer.code != INKSTONE_OK) return r.answer;
    go_answer a = inkstone_go_on_durable(r.pending, handle);
    a.number = r.pending.lsn;
    return a;
}

go_answer inkstone_go_on_watermark(const inkstone_log *log, uintptr_t handle) {
    go_answer a = {0};
    a.code = inkstone_on_watermark(log, told, (void *)handle, &a.error);
    return a;
}

static void hear(void *context, const inkstone_event *event) {
    inkstoneGoEvent((uintptr_t)context, (inkstone_event *)event);
}

static void forget(void *context) { inkstoneGoForget((uintptr_t)context); }

inkstone_code inkstone_go_set_listener(inkstone_options *options, uintptr_t handle) {
    return inkstone_options_set_listener(options, hear, (void *)handle, forget);
}
