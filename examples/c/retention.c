/* A producer that waits for the last of many records, and a log that keeps at least its newest 64
 * MiB and what was appended in the last hour: ./retention DIRECTORY */
#include <inkstone.h>
#include <stdio.h>
#include <stdlib.h>

static inkstone_error *error;

static void well(inkstone_code code) {
    if (code == INKSTONE_OK) return;
    fprintf(stderr, "%s: %s\n", inkstone_code_name(code), inkstone_error_message(error));
    exit(1);
}

int main(int count, char **arguments) {
    const char *path = count > 1 ? arguments[1] : "readings";
    /* A program that was compiled for another library stops before it does harm. */
    if (inkstone_abi_version() != INKSTONE_ABI_VERSION) return 1;

    inkstone_options *options = inkstone_options_new();
    well(inkstone_options_set(options, "segment_bytes", "33554432", &error));
    inkstone_log *log;
    well(inkstone_open(path, options, &log, &error));
    inkstone_options_free(options);

    uint64_t last = 0;
    for (int number = 0; number < 1000; number++) {
        char reading[64];
        const int size = snprintf(reading, sizeof reading, "reading %d", number);
        inkstone_pending pending;
        well(inkstone_append(log, reading, (size_t)size, &pending, &error));
        last = pending.lsn;
        inkstone_let_go(&pending); /* Nobody waits for this one. */
    }
    /* Any thread that has the LSN can wait; here for up to ten seconds. */
    well(inkstone_wait_durable(log, last, 10 * 1000 * 1000, &error));
    printf("LSN %llu is durable\n", (unsigned long long)last);

    uint64_t by_size, by_age;
    well(inkstone_keep_bytes(path, 64 << 20, &by_size, &error));
    well(inkstone_keep_seconds(path, 60 * 60, &by_age, &error));
    well(inkstone_truncate_before(log, by_size < by_age ? by_size : by_age, &error));
    printf("the first record is LSN %llu\n", (unsigned long long)inkstone_first(log));

    well(inkstone_close(log, &error));
    inkstone_log_free(log);
}
