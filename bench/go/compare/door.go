// The Go package beside C: 64 goroutines that append and wait, and 64 threads that do so in C, on one log each, in one process.

package main

/*
#cgo pkg-config: inkstone
#include <inkstone.h>
#include <pthread.h>
#include <stdlib.h>
#include <stdatomic.h>
#include <unistd.h>

enum { RECORD = 128, THREADS = 64 };

static atomic_bool is_over;
static atomic_ulong appended;
static atomic_int failed;

static void *append(void *log) {
    static const char record[RECORD];
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        if (inkstone_append_durable(log, record, RECORD, 0, 0) != INKSTONE_OK) atomic_store(&failed, 1);
        atomic_fetch_add_explicit(&appended, 1, memory_order_relaxed);
    }
    return 0;
}

// How many records `threads` threads append in this time; 0 if one failed.
static unsigned long appended_in(inkstone_log *log, int threads, unsigned us) {
    pthread_t all[THREADS];
    atomic_store(&appended, 0);
    atomic_store(&is_over, false);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&all[i], 0, append, log) != 0) return 0;
    usleep(us);
    atomic_store(&is_over, true);
    for (int i = 0; i < threads; i++) pthread_join(all[i], 0);
    return atomic_load(&failed) ? 0 : atomic_load(&appended);
}

static inkstone_log *opened(const char *path) {
    inkstone_log *log = 0;
    inkstone_open(path, 0, &log, 0);
    return log;
}
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"inkstone.example/inkstone"
)

func door(path string) error {
	log, err := inkstone.Open(filepath.Join(path, "from-go"))
	if err != nil {
		return err
	}
	defer log.Close()
	name := C.CString(filepath.Join(path, "from-c"))
	defer C.free(unsafe.Pointer(name))
	c := C.opened(name)
	if c == nil {
		return errors.New("C could not open its log")
	}
	defer C.inkstone_log_free(c)
	with, end := context.WithCancel(context.Background())
	defer end()
	for _, count := range []int{64, 1} {
		inC := way{"C", func() (float64, error) {
			start := time.Now()
			count := C.appended_in(c, C.int(count), C.uint(slice.Microseconds()))
			if count == 0 {
				return 0, errors.New("an append failed in C")
			}
			return float64(count) / time.Since(start).Seconds(), nil
		}}
		inGo := way{"Go", func() (float64, error) { return goroutines(context.Background(), log, count) }}
		cancelled := way{"Go", func() (float64, error) { return goroutines(with, log, count) }}
		if err := compare(fmt.Sprintf("%d goroutines that wait", count), []way{inGo, inC}); err != nil {
			return err
		}
		if err := compare(fmt.Sprintf("%d, each with a context that can end", count), []way{cancelled, inC}); err != nil {
			return err
		}
	}
	return nil
}

func goroutines(ctx context.Context, log *inkstone.Log, count int) (float64, error) {
	var appended atomic.Uint64
	var isOver atomic.Bool
	var failed atomic.Pointer[error]
	var group sync.WaitGroup
	start, record := time.Now(), make([]byte, 128)
	for range count {
		group.Go(func() {
			for !isOver.Load() {
				if _, err := log.AppendDurable(ctx, record); err != nil {
					failed.Store(&err)
					return
				}
				appended.Add(1)
			}
		})
	}
	time.Sleep(slice)
	isOver.Store(true)
	group.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(appended.Load()) / time.Since(start).Seconds(), nil
}
