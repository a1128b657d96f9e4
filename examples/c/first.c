/* Opens a log, appends, reads back: ./first DIRECTORY */
#include <inkstone.h>
#include <stdio.h>
#include <stdlib.h>

static inkstone_error *error;

static void well(inkstone_code code) {
    if (code == INKSTONE_OK) return;
    fprintf(stderr, "%s\n", inkstone_error_message(error));
    exit(1);
}

int main(int count, char **arguments) {
    inkstone_log *log;
    well(inkstone_open(count > 1 ? arguments[1] : "orders", NULL, &log, &error));
    uint64_t lsn;
    well(inkstone_append_durable(log, "one order", 9, &lsn, &error)); /* Durable when it returns. */

    inkstone_reader *reader;
    inkstone_cursor *cursor;
    inkstone_record record;
    well(inkstone_reader_of(log, &reader, &error));
    well(inkstone_cursor_new(reader, inkstone_first(log), &cursor, &error));
    while (inkstone_cursor_next(cursor, &record, &error) == INKSTONE_OK)
        printf("%llu: %.*s\n", (unsigned long long)record.lsn, (int)record.size,
               (const char *)record.data);
    well(inkstone_error_code(error)); /* At the end there is no error. */
    inkstone_cursor_free(cursor);
    inkstone_reader_free(reader);
    well(inkstone_close(log, &error));
    inkstone_log_free(log);
}
