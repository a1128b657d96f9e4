/* 64 writers whose callbacks use the program's own lock, as valgrind's helgrind and drd can follow
 * it: the library's locks are futexes, which they do not see, so nothing here is passed through the
 * library but a pointer to what that lock guards. With -DWITHOUT_THE_LOCK it has a race. */
#include "check.h"

#include <pthread.h>

enum { WRITERS = 64, RECORDS = 20 };

struct writer {
    pthread_mutex_t lock;
    pthread_cond_t called;
    uint64_t last;
    int durable;
};

static inkstone_log *opened;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int durable;

static void count(void *context, uint64_t lsn, const inkstone_error *outcome) {
    struct writer *writer = context;
    CHECK(outcome == NULL);
#ifdef WITHOUT_THE_LOCK
    durable++;
#else
    pthread_mutex_lock(&lock);
    durable++;
    pthread_mutex_unlock(&lock);
#endif
    pthread_mutex_lock(&writer->lock);
    CHECK(lsn > writer->last);
    writer->last = lsn;
    writer->durable++;
    pthread_cond_signal(&writer->called);
    pthread_mutex_unlock(&writer->lock);
}

static void *writes(void *context) {
    struct writer *writer = context;
    for (int i = 0; i < RECORDS; i++) {
        inkstone_pending pending;
        CHECK(inkstone_append(opened, "record", 6, &pending, NULL) == INKSTONE_OK);
        CHECK(inkstone_on_durable(&pending, count, writer, NULL) == INKSTONE_OK);
        /* Some wait themselves, so that callbacks come on their threads too. */
        if (i % 4 == 3)
            CHECK(inkstone_append_durable(opened, "waited", 6, NULL, NULL) == INKSTONE_OK);
    }
    pthread_mutex_lock(&writer->lock);
    while (writer->durable < RECORDS) pthread_cond_wait(&writer->called, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

int main(int count, char **arguments) {
    static struct writer writers[WRITERS];
    pthread_t threads[WRITERS];
    CHECK(count == 2);
    OK(inkstone_open(arguments[1], NULL, &opened, &error));
    for (int i = 0; i < WRITERS; i++) {
        pthread_mutex_init(&writers[i].lock, NULL);
        pthread_cond_init(&writers[i].called, NULL);
        CHECK(pthread_create(&threads[i], NULL, writes, &writers[i]) == 0);
    }
    for (int i = 0; i < WRITERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    OK(inkstone_close(opened, &error));
    CHECK(inkstone_durable(opened) == WRITERS * (RECORDS + RECORDS / 4));
    pthread_mutex_lock(&lock);
    CHECK(durable == WRITERS * RECORDS);
    pthread_mutex_unlock(&lock);
    inkstone_log_free(opened);
    puts("each writer got its callbacks");
    return 0;
}
