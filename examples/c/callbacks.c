/* A producer that never waits: each record's callback says when it is durable.
 * ./callbacks DIRECTORY */
#include <inkstone.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_uint durable, failed;

/* Runs on the thread that made the record durable: it must be quick. */
static void outcome(void *context, uint64_t lsn, const inkstone_error *error) {
    (void)context;
    if (error == NULL) {
        atomic_fetch_add(&durable, 1);
    } else {
        atomic_fetch_add(&failed, 1);
        fprintf(stderr, "LSN %llu: %s\n", (unsigned long long)lsn, inkstone_error_message(error));
    }
}

int main(int count, char **arguments) {
    inkstone_log *log;
    inkstone_error *error;
    if (inkstone_open(count > 1 ? arguments[1] : "events", NULL, &log, &error) != INKSTONE_OK) {
        fprintf(stderr, "%s\n", inkstone_error_message(error));
        inkstone_error_free(error);
        return 1;
    }
    for (uint32_t number = 0; number < 10000; number++) {
        /* A record in two parts needs no joining. */
        const inkstone_bytes parts[2] = {{&number, sizeof number}, {"an event", 8}};
        inkstone_pending pending;
        if (inkstone_append_parts(log, parts, 2, &pending, &error) != INKSTONE_OK ||
            inkstone_on_durable(&pending, outcome, NULL, &error) != INKSTONE_OK) {
            fprintf(stderr, "%s\n", inkstone_error_message(error));
            inkstone_error_free(error);
            break;
        }
    }
    /* Closing makes everything durable and leaves no callback uncalled. */
    const inkstone_code closed = inkstone_close(log, NULL);
    inkstone_log_free(log);
    printf("%u durable, %u failed\n", durable, failed);
    return closed == INKSTONE_OK && failed == 0 ? 0 : 1;
}
