/* A disk that becomes full: DIRECTORY is on a small one. Lines are dropped or wait, closing ends
 * those that wait, and what was accepted is in the file, or waits for the next opening. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static char place[4096];
static atomic_ulong accepted;

static const char line[] = "a line of some length, as logs have them\n";

static unsigned long lines_of(const char *path, const char *wanted) {
    size_t bytes;
    unsigned long lines = 0;
    char *text = contents(path, &bytes);
    for (char *at = strstr(text, wanted); at != NULL; at = strstr(at + 1, wanted)) lines++;
    free(text);
    return lines;
}

/* What fills the disk, until it is full but for some KiB. */
static FILE *fill(const char *path) {
    static char block[4096];
    FILE *filler = fopen(path, "w");
    CHECK(filler != NULL && setvbuf(filler, NULL, _IONBF, 0) == 0);
    while (fwrite(block, 1, sizeof block, filler) == sizeof block) {}
    return filler;
}

static void *write_until_closed(void *log) {
    int code;
    while ((code = put(log, line)) == INKSTONE_TEXT_OK) accepted++;
    CHECK(code == INKSTONE_TEXT_CLOSED);
    return NULL;
}

int main(int count, char **arguments) {
    char filler[4096];
    CHECK(count == 2);
    snprintf(place, sizeof place, "%s/app.log", arguments[1]);
    snprintf(filler, sizeof filler, "%s/filler", arguments[1]);

    inkstone_text_log *log = opened(place, "drop_after_us=0 buffers_bytes=65536");
    FILE *file = fill(filler);
    unsigned long put_ok = 0, dropped = 0;
    while (dropped < 1000) {
        const int code = put(log, line);
        CHECK(code == INKSTONE_TEXT_OK || code == INKSTONE_TEXT_DROPPED);
        if (code == INKSTONE_TEXT_OK) put_ok++;
        else dropped++;
    }
    FAILS(inkstone_text_flush(log, 300, &error), INKSTONE_TEXT_TIMED_OUT, "No space left");
    CHECK(ftruncate(fileno(file), 0) == 0 && fclose(file) == 0);
    OK(inkstone_text_flush(log, 60000, &error));
    CHECK(put(log, line) == INKSTONE_TEXT_OK);
    OK(inkstone_text_close(log, &error));
    inkstone_text_log_free(log);
    CHECK(lines_of(place, line) == put_ok + 1 && lines_of(place, "1000 lines dropped") == 1);

    CHECK(unlink(place) == 0);
    log = opened(place, "survive=kill close_ms=100 buffers_bytes=65536");
    file = fill(filler);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) CHECK(!pthread_create(&threads[i], NULL, write_until_closed, log));
    for (unsigned long seen = 1; seen != accepted; usleep(300000)) seen = accepted;
    FAILS(inkstone_text_close(log, &error), INKSTONE_TEXT_IO, "lines were not written");
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    inkstone_text_log_free(log);
    CHECK(ftruncate(fileno(file), 0) == 0 && fclose(file) == 0);
    log = opened(place, "survive=kill");
    OK(inkstone_text_close(log, &error));
    inkstone_text_log_free(log);
    CHECK(accepted > 0 && lines_of(place, line) == accepted);
    puts("no accepted line was lost on a full disk");
    return 0;
}
