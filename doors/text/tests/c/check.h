/* What the C programs of the tests check with. A failed check says where, and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <inkstone_text.h>
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

/* A place for a message that holds no pointer before a call: the call must not read it. */
static char *error = (char *)8;

static inline void ends(int line, int got, int wanted, const char *words) {
    const char *said = error == NULL ? "" : error;
    if (got != wanted || strstr(said, words) == NULL || (wanted < 0) != (error != NULL)) {
        fprintf(stderr, "line %d: %d, not %d with \"%s\": %s\n", line, got, wanted, words, said);
        exit(1);
    }
    free(error);
    error = (char *)8;
}

/* The call, whose last argument is `&error`, ends so, and its message has these words. */
#define FAILS(call, code, words) ends(__LINE__, call, code, words)
#define OK(call) ends(__LINE__, call, INKSTONE_TEXT_OK, "")

static inline inkstone_text_log *opened(const char *path, const char *options) {
    inkstone_text_log *log = inkstone_text_open(path, options, &error);
    if (log == NULL) fprintf(stderr, "%s\n", error);
    CHECK(log != NULL && error == NULL);
    return log;
}

static inline void refused(const char *path, const char *options, const char *words) {
    CHECK(inkstone_text_open(path, options, &error) == NULL);
    ends(__LINE__, -1, -1, words);
}

static inline int put(const inkstone_text_log *log, const char *line) {
    return inkstone_text_write(log, line, strlen(line));
}

/* What is in a file; the caller frees it. */
static inline char *contents(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*bytes + 1);
    CHECK(text != NULL && fread(text, 1, *bytes, file) == *bytes && fclose(file) == 0);
    text[*bytes] = 0;
    return text;
}

static inline void holds(const char *path, const char *wanted) {
    size_t bytes;
    char *text = contents(path, &bytes);
    if (strcmp(text, wanted) != 0) fprintf(stderr, "%s has:\n%s\n", path, text);
    CHECK(strcmp(text, wanted) == 0);
    free(text);
}

#endif
