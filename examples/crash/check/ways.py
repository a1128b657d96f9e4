#!/usr/bin/env python3
"""The plain ways of writing files as programs of a few lines, for `inkstone powerloss check`.

    ways.py                    their names, each with what is to be found: kept, or lost
    ways.py before             makes what they begin with, in the current directory
    ways.py NAME               does it there, once, and exits with 0
    ways.py expect FS NAME     kept, lost, or either, on that file system

From the root of a clone, of one way:

    mkdir before && (cd before && ../examples/crash/check/ways.py before)
    inkstone powerloss check --in before --durable -- "$PWD/examples/crash/check/ways.py" NAME

`either`: nothing promises it, and the page of the power-loss lab says where it was seen lost.
"""

import ctypes
import mmap
import os
import sys

BLOCK = 4096
OLD, NEW = b"o" * BLOCK * 2, b"n" * BLOCK
data = lambda how=0: os.open("data", os.O_RDWR | os.O_CREAT | how)  # grows: it has no blocks yet
full = lambda how=0: os.open("full", os.O_RDWR | how)  # of two written blocks


def aligned(bytes):
    page = mmap.mmap(-1, len(bytes))
    page.write(bytes)
    return page


def put(file, how=0):
    os.pwritev(file, [aligned(NEW)], 0, how)
    return file


def stream(*ends):
    with open("data", "wb") as file:
        file.write(NEW)
        for end in ends:
            file.flush()
            end(file.fileno())


def sparse(sync=lambda file: None):
    file = data()
    os.ftruncate(file, 4 * BLOCK)
    sync(file)
    return file


def fallocated(how=0):
    file = data(how)
    os.posix_fallocate(file, 0, 4 * BLOCK)
    return file


def mapped(file, sync):
    page = mmap.mmap(file, 2 * BLOCK)
    page[:BLOCK] = NEW
    if sync:
        page.flush()


def batch(file):
    for number in range(8):
        os.pwrite(file, NEW, number * BLOCK)
    return file


def made(name, *syncs):
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(file, NEW)
    for sync in syncs:
        sync(file)
    os.close(file)


def replace(*syncs, directory=False):
    made("data.new", *syncs)
    os.rename("data.new", "full")
    if directory:
        here()


def here():
    os.fsync(os.open(".", os.O_RDONLY))


def write_back(file):
    call = ctypes.CDLL(None, use_errno=True).sync_file_range
    longs = [ctypes.c_int64(0), ctypes.c_int64(BLOCK)]
    assert call(file, *longs, 7) == 0, os.strerror(ctypes.get_errno())


fsync, fdatasync, direct = os.fsync, os.fdatasync, os.O_DIRECT
KEPT = {
    # `data` is new: its name is durable by the sync of its file, on each of the file systems here.
    "append-fdatasync": lambda: fdatasync(put(data())),
    "append-fsync": lambda: fsync(put(data())),
    "append-fdatasync-fsync": lambda: (fdatasync(put(data())), fsync(data())),
    "append-o-dsync": lambda: put(data(os.O_DSYNC)),
    "append-o-sync": lambda: put(data(os.O_SYNC)),
    "append-rwf-dsync": lambda: put(data(), os.RWF_DSYNC),
    "append-batch-fdatasync": lambda: fdatasync(batch(data())),
    "overwrite-fdatasync": lambda: fdatasync(put(full())),
    "overwrite-o-dsync": lambda: put(full(os.O_DSYNC)),
    "overwrite-rwf-dsync": lambda: put(full(), os.RWF_DSYNC),
    "direct-append-fdatasync": lambda: fdatasync(put(data(direct))),
    "direct-append-o-dsync": lambda: put(data(direct | os.O_DSYNC)),
    "direct-overwrite-fdatasync": lambda: fdatasync(put(full(direct))),
    "direct-overwrite-o-dsync": lambda: put(full(direct | os.O_DSYNC)),
    "fallocated-fdatasync": lambda: fdatasync(put(fallocated())),
    "direct-fallocated-o-dsync": lambda: put(fallocated(direct | os.O_DSYNC)),
    "sparse-fdatasync": lambda: fdatasync(put(sparse())),
    "set-len-fsync-fdatasync": lambda: fdatasync(put(sparse(fsync))),
    "mmap-msync": lambda: mapped(full(), True),
    "mmap-sparse-msync": lambda: mapped(sparse(), True),
    "stdio-fsync": lambda: stream(fsync),
    "stdio-fdatasync": lambda: stream(fdatasync),
    "new-file-fsync-directory": lambda: (made("made", fsync), here()),
    "replace": lambda: replace(fsync, directory=True),
    "new-file-fdatasync": lambda: made("made", fdatasync),
    "new-file-fsync": lambda: made("made", fsync),
}
LOST = {
    "replace-no-directory": lambda: replace(fsync),
    "write-only": lambda: put(data()),
    "overwrite-only": lambda: put(full()),
    "direct-only": lambda: put(full(direct)),
    "sync-file-range-only": lambda: write_back(put(full())),
    "stdio-only": lambda: stream(),
    "stdio-fflush-only": lambda: stream(lambda file: None),
    "mmap-only": lambda: mapped(full(), False),
    "set-len-only": lambda: sparse(),
    "sparse-only": lambda: put(sparse()),
    "new-file-close": lambda: made("made"),
    "replace-no-sync": lambda: replace(),
}
EITHER = {("ext4-nojournal", "replace"), ("ext4-data-journal", "sync-file-range-only")}


def expected(kind, name):
    return "either" if (kind, name) in EITHER else "kept" if name in KEPT else "lost"


match sys.argv[1:]:
    case []:
        print("\n".join(KEPT | LOST))
    case ["before"]:
        made("full")
        os.pwrite(full(), OLD, 0)
    case ["expect", kind, name]:
        print(expected(kind, name))
    case [name]:
        (KEPT | LOST)[name]()
