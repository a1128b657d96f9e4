/* Each sentence of the header that a program can see: DIRECTORY is a place for logs. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static char place[4096], moved[4096];

static const char *in(const char *directory, const char *name) {
    snprintf(place, sizeof place, "%s/%s", directory, name);
    snprintf(moved, sizeof moved, "%s/%s.moved", directory, name);
    return place;
}

static void misuse(const char *directory) {
    refused(NULL, NULL, "path is NULL or empty");
    refused("", NULL, "path is NULL or empty");
    refused(directory, NULL, "not a regular file");
    CHECK(mkfifo(in(directory, "pipe"), 0600) == 0);
    refused(place, NULL, "not a regular file");
    refused(in(directory, "no/such/app.log"), NULL, "No such file");
    in(directory, "never.log");
    refused(place, "survive=kil", "survive=kil: it must be nothing, kill, kill!");
    refused(place, "survive", "it must be");
    refused(place, "rotate_bytes=64MiB", "a whole number");
    refused(place, "rotate_bytes=-1", "a whole number");
    refused(place, "rotate_bytes=99999999999999999999", "that 64 bits hold");
    refused(place, "rotate_bytes=16383", "too small");
    refused(place, "drop_after_us=", "a whole number");
    refused(place, "compress=zip", "none or gzip");
    refused(place, "buffers_bytes=18446744073709551615", "do not fit into memory");
    refused(place, "keep_files=3", "need rotate_bytes or rotate_every_s");
    refused(place, "sync_every_ms=3", "needs survive=power-loss");
    refused(place, "survive=kill,rotate_bytes=1", "it must be");
    refused(place, "colour=red", "there is no option colour: there are survive, ");
    refused(place, "\xff\xfe=1", "there is no option");
    refused(place, "survive=kill! stage_directory=/no/such", "/no/such");
    CHECK(access(place, F_OK) != 0 || unlink(place) == 0);
    CHECK(put(NULL, "x\n") == INKSTONE_TEXT_INVALID);
    CHECK(inkstone_text_reopen(NULL) == INKSTONE_TEXT_INVALID);
    FAILS(inkstone_text_flush(NULL, 0, &error), INKSTONE_TEXT_INVALID, "log is NULL");
    FAILS(inkstone_text_close(NULL, &error), INKSTONE_TEXT_INVALID, "log is NULL");
    CHECK(inkstone_text_open(NULL, NULL, NULL) == NULL);
    CHECK(inkstone_text_close(NULL, NULL) == INKSTONE_TEXT_INVALID);
    inkstone_text_log_free(NULL);
}

static void lines_files_and_ends(const char *directory) {
    in(directory, "app.log");
    inkstone_text_log *log = opened(place, "  survive=nothing\tsurvive=kill\n ");
    CHECK(put(log, "one\n") == INKSTONE_TEXT_OK);
    CHECK(inkstone_text_write(log, NULL, 5) == INKSTONE_TEXT_INVALID);
    CHECK(inkstone_text_write(log, "x", SIZE_MAX) == INKSTONE_TEXT_INVALID);
    CHECK(inkstone_text_write(log, NULL, 0) == INKSTONE_TEXT_OK);
    OK(inkstone_text_flush(log, 60000, &error));
    holds(place, "one\n");
    refused(place, "close_ms=0", "writer");
    for (int round = 0; round < 20; round++) {
        CHECK(rename(place, moved) == 0);
        CHECK(inkstone_text_reopen(log) == INKSTONE_TEXT_OK);
        CHECK(put(log, "two, without its end") == INKSTONE_TEXT_OK);
        CHECK(put(log, "; three\nand four\n") == INKSTONE_TEXT_OK);
        OK(inkstone_text_flush(log, UINT64_MAX, &error));
        holds(moved, round == 0 ? "one\n" : "two, without its end; three\nand four\n");
        holds(place, "two, without its end; three\nand four\n");
    }
    OK(inkstone_text_close(log, &error));
    CHECK(put(log, "x\n") == INKSTONE_TEXT_CLOSED);
    CHECK(inkstone_text_reopen(log) == INKSTONE_TEXT_CLOSED);
    FAILS(inkstone_text_flush(log, 0, &error), INKSTONE_TEXT_CLOSED, "closed");
    FAILS(inkstone_text_close(log, &error), INKSTONE_TEXT_CLOSED, "closed");
    inkstone_text_log_free(log);
    /* Freed without a close, it is closed. */
    CHECK(put(log = opened(place, NULL), "five\n") == INKSTONE_TEXT_OK);
    inkstone_text_log_free(log);
    holds(place, "two, without its end; three\nand four\nfive\n");
}

/* Bytes that are no text, a line that is longer than a buffer, and one that is longer than all
 * buffers together: it is dropped as a whole. */
static void any_bytes(const char *directory) {
    enum { LONG = 1000000, TOO_LONG = 10000000 };
    size_t bytes;
    char *line = malloc(TOO_LONG);
    CHECK(line != NULL);
    for (size_t i = 0; i < TOO_LONG; i++) line[i] = (char)(i * 7);
    inkstone_text_log *log = opened(in(directory, "bytes"), NULL);
    CHECK(inkstone_text_write(log, "a\0b\n", 4) == INKSTONE_TEXT_OK);
    CHECK(inkstone_text_write(log, line, LONG) == INKSTONE_TEXT_OK);
    OK(inkstone_text_close(log, &error));
    inkstone_text_log_free(log);
    char *found = contents(place, &bytes);
    CHECK(bytes == LONG + 4 && memcmp(found, "a\0b\n", 4) == 0);
    CHECK(memcmp(found + 4, line, LONG) == 0);
    free(found);
    log = opened(in(directory, "dropped"), NULL);
    CHECK(inkstone_text_write(log, line, TOO_LONG) == INKSTONE_TEXT_DROPPED);
    CHECK(put(log, "after\n") == INKSTONE_TEXT_OK);
    inkstone_text_log_free(log);
    found = contents(place, &bytes);
    CHECK(strstr(found, "1 lines dropped (10000000 bytes)") && strstr(found, "after\n"));
    free(found), free(line);
}

static void a_forked_child(const char *directory) {
    inkstone_text_log *log = opened(in(directory, "parent"), "survive=kill");
    CHECK(put(log, "before\n") == INKSTONE_TEXT_OK);
    pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        CHECK(put(log, "x\n") == INKSTONE_TEXT_FORKED);
        CHECK(inkstone_text_reopen(log) == INKSTONE_TEXT_FORKED);
        FAILS(inkstone_text_flush(log, 9, &error), INKSTONE_TEXT_FORKED, "forked");
        FAILS(inkstone_text_close(log, &error), INKSTONE_TEXT_FORKED, "forked");
        refused(place, "close_ms=0", "writer");
        inkstone_text_log_free(log);
        log = opened(in(directory, "own"), "survive=kill");
        CHECK(put(log, "mine\n") == INKSTONE_TEXT_OK);
        OK(inkstone_text_close(log, &error));
        inkstone_text_log_free(log);
        /* The parent's threads are not here, and what they held would count as leaked. */
        execlp("true", "true", (char *)NULL);
        _exit(1);
    }
    int status;
    CHECK(waitpid(process, &status, 0) == process && WIFEXITED(status) && !WEXITSTATUS(status));
    CHECK(put(log, "after\n") == INKSTONE_TEXT_OK);
    OK(inkstone_text_close(log, &error));
    inkstone_text_log_free(log);
    holds(place, "before\nafter\n");
    holds(in(directory, "own"), "mine\n");
}

static atomic_ulong accepted;
static atomic_int last_codes;

static void *write_until_closed(void *log) {
    int code;
    while ((code = put(log, "a line of some length\n")) == INKSTONE_TEXT_OK) accepted++;
    CHECK(code == INKSTONE_TEXT_CLOSED);
    last_codes++;
    return NULL;
}

static void *reopen_until_closed(void *log) {
    while (inkstone_text_reopen(log) == INKSTONE_TEXT_OK) usleep(10000);
    return NULL;
}

static void ignore(int signal) { (void)signal; }

/* Four writers, two threads that reopen and a storm of signals, while the log is closed. */
static void closing_beside_writers(const char *directory) {
    static const struct itimerval often = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = ignore};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int round = 0; round < 5; round++) {
        pthread_t threads[6];
        accepted = 0;
        last_codes = 0;
        inkstone_text_log *log = opened(in(directory, "busy"), round % 2 ? "survive=kill" : NULL);
        for (int i = 0; i < 6; i++) {
            void *(*work)(void *) = i < 4 ? write_until_closed : reopen_until_closed;
            CHECK(pthread_create(&threads[i], NULL, work, log) == 0);
        }
        while (accepted < 20000) usleep(1000);
        OK(inkstone_text_flush(log, 60000, &error));
        OK(inkstone_text_close(log, &error));
        for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
        inkstone_text_log_free(log);
        size_t bytes;
        free(contents(place, &bytes));
        CHECK(last_codes == 4 && bytes == accepted * strlen("a line of some length\n"));
        CHECK(unlink(place) == 0);
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

static void *on_a_small_stack(void *directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/small-stack", (const char *)directory);
    inkstone_text_log *log = opened(path, "survive=kill rotate_bytes=65536 keep_files=1");
    for (int i = 0; i < 10000; i++) CHECK(put(log, "a line of some length\n") == INKSTONE_TEXT_OK);
    OK(inkstone_text_flush(log, 60000, &error));
    OK(inkstone_text_close(log, &error));
    inkstone_text_log_free(log);
    return NULL;
}

static void a_small_stack(const char *directory) {
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0);
    /* What the program's own functions use comes on top. */
    CHECK(pthread_attr_setstacksize(&attributes, INKSTONE_TEXT_STACK_BYTES + 16384) == 0);
    CHECK(pthread_create(&thread, &attributes, on_a_small_stack, (void *)(size_t)directory) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && pthread_attr_destroy(&attributes) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    misuse(arguments[1]);
    lines_files_and_ends(arguments[1]);
    any_bytes(arguments[1]);
    a_forked_child(arguments[1]);
    closing_beside_writers(arguments[1]);
    a_small_stack(arguments[1]);
    puts("the door does what its header says");
    return 0;
}
