/* How a program that is killed says what was accepted: counts in a file that outlives it. */
#ifndef COUNTS_H
#define COUNTS_H

#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of a thread: its last line that was begun, and its last one that was accepted. */
struct count {
    volatile uint64_t begun, accepted;
};

/* An array of them, or NULL. */
static inline void *counts_in(const char *path) {
    const int file = open(path, O_RDWR);
    void *start = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return start == MAP_FAILED ? NULL : start;
}

#endif
