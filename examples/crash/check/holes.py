#!/usr/bin/env python3
"""Does fdatasync leave holes? A writer of 8 blocks by 8 writes, then one fdatasync, again and again,
which prints a line for each block that was synced; and a reader that prints those that are there.

    inkstone powerloss any --fs ext4-nojournal --rounds 10 --states 60 \\
        --writer 'examples/crash/check/holes.py write {dir}' \\
        --reader 'examples/crash/check/holes.py read {dir}'
"""

import os
import sys

file = os.open(sys.argv[2] + "/data", os.O_RDWR | os.O_CREAT)
block = lambda number: b"%-4095d\n" % number
there = [n for n in range(os.fstat(file).st_size // 4096)
         if os.pread(file, 4096, n * 4096) == block(n)]
if sys.argv[1] == "read":
    sys.exit(print(*there, sep="\n", end="\n" * bool(there)))
first = len(there)
while True:
    for number in range(first, first + 8):
        os.pwrite(file, block(number), number * 4096)
    os.fdatasync(file)
    for number in range(first, first + 8):
        print(number, flush=True)
    first += 8
