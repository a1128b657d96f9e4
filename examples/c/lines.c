/*
 * A writer and a reader for `inkstone powerloss any`, which kills the writer at random and asks the
 * reader what is left: ./lines write DIRECTORY prints a line for each record that is durable,
 * ./lines read DIRECTORY prints what is there.
 */
#include <inkstone.h>
#include <stdio.h>
#include <string.h>

static int failed(inkstone_error *error) {
    fprintf(stderr, "%s\n", inkstone_error_message(error));
    inkstone_error_free(error);
    return 1;
}

static int write_lines(const char *directory) {
    inkstone_log *log;
    inkstone_error *error;
    if (inkstone_open(directory, NULL, &log, &error) != INKSTONE_OK) return failed(error);
    for (;;) {
        char line[64];
        const uint64_t expected = inkstone_last(log) + 1;
        const int size = snprintf(line, sizeof line, "line %llu", (unsigned long long)expected);
        uint64_t lsn;
        if (inkstone_append_durable(log, line, (size_t)size, &lsn, &error) != INKSTONE_OK)
            return failed(error);
        if (lsn != expected || printf("%s\n", line) < 0 || fflush(stdout) != 0) return 1;
    }
}

static int read_lines(const char *directory) {
    inkstone_reader *reader;
    inkstone_cursor *cursor;
    inkstone_record record;
    inkstone_error *error;
    switch (inkstone_reader_open(directory, NULL, &reader, &error)) {
    case INKSTONE_OK: break;
    case INKSTONE_NO_LOG: return inkstone_error_free(error), 0; /* Killed before there was one. */
    default: return failed(error);
    }
    if (inkstone_cursor_new(reader, 1, &cursor, &error) != INKSTONE_OK) return failed(error);
    while (inkstone_cursor_next(cursor, &record, &error) == INKSTONE_OK)
        printf("%.*s\n", (int)record.size, (const char *)record.data);
    const int status = error == NULL && fflush(stdout) == 0 ? 0 : failed(error);
    inkstone_cursor_free(cursor);
    inkstone_reader_free(reader);
    return status;
}

int main(int count, char **arguments) {
    if (count == 3 && strcmp(arguments[1], "write") == 0) return write_lines(arguments[2]);
    if (count == 3 && strcmp(arguments[1], "read") == 0) return read_lines(arguments[2]);
    fprintf(stderr, "usage: %s write|read DIRECTORY\n", arguments[0]);
    return 2;
}
