/* Writes lines as fast as it can until it is killed: writer LOG COUNTS THREADS OPTIONS. */
#include "check.h"
#include "counts.h"

#include <pthread.h>

static inkstone_text_log *text_log;
static struct count *counts;

static void *run(void *number) {
    const size_t thread = (size_t)number;
    struct count *count = &counts[thread];
    static const int long_line = 20000;
    char *line = malloc((size_t)long_line + 100);
    CHECK(line != NULL);
    for (;;) {
        const uint64_t now = count->begun + 1;
        /* Every thousandth is longer than a small buffer. */
        const int bytes = snprintf(line, (size_t)long_line + 100, "%zu %llu%*s and so on\n", thread,
                                   (unsigned long long)now, now % 1000 == 0 ? long_line : 0, "");
        count->begun = now;
        CHECK(inkstone_text_write(text_log, line, (size_t)bytes) == INKSTONE_TEXT_OK);
        count->accepted = now;
    }
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 5 && (counts = counts_in(arguments[2])) != NULL);
    const size_t threads = strtoul(arguments[3], NULL, 10);
    text_log = opened(arguments[1], arguments[4]);
    for (size_t i = 0; i + 1 < threads; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, run, (void *)i) == 0);
    }
    if (threads > 0) run((void *)(threads - 1));
    OK(inkstone_text_close(text_log, &error));
    inkstone_text_log_free(text_log);
    return 0;
}
