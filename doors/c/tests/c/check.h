/* What the C programs of the tests check with. A failed check says where, and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <inkstone.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* A place for an error that holds no pointer before the call: the call must not read it. */
static inkstone_error *error;

static inline void fails(int line, inkstone_code got, inkstone_code wanted, const char *words) {
    const char *message = inkstone_error_message(error);
    if (got != wanted || inkstone_error_code(error) != wanted || strstr(message, words) == NULL ||
        inkstone_error_advice(error)[0] == 0) {
        fprintf(stderr, "line %d: %s, not %s with \"%s\": %s\n", line, inkstone_code_name(got),
                inkstone_code_name(wanted), words, message);
        exit(1);
    }
    inkstone_error_free(error);
    error = (inkstone_error *)8;
}

static inline void works(int line, inkstone_code got) {
    if (got != INKSTONE_OK || error != NULL) {
        fprintf(stderr, "line %d: %s: %s\n", line, inkstone_code_name(got),
                inkstone_error_message(error));
        exit(1);
    }
    error = (inkstone_error *)8;
}

/* The call fails with this code, and its message has these words. Its last argument is `&error`. */
#define FAILS(call, code, words) fails(__LINE__, call, code, words)
#define INVALID(call, words) FAILS(call, INKSTONE_INVALID, words)
#define OK(call) works(__LINE__, call)
/* The call returns this code, and makes no error object. */
#define QUIET(call, code)                                                                          \
    do {                                                                                           \
        CHECK((call) == (code));                                                                   \
        CHECK(error == NULL);                                                                      \
    } while (0)

static inline void set(inkstone_options *options, const char *name, const char *value) {
    OK(inkstone_options_set(options, name, value, &error));
}

/* Options of a log with small segments. */
static inline inkstone_options *small(void) {
    inkstone_options *options = inkstone_options_new();
    set(options, "segment_bytes", "65536");
    set(options, "record_bytes_max", "32768");
    set(options, "buffer_bytes", "32768");
    set(options, "preparation", "fallocate");
    return options;
}

#endif
