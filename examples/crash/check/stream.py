#!/usr/bin/env python3
"""What a C stream keeps when its process is killed: each line that is in its buffer is also printed.
A line has 8 bytes, so the buffer, of a multiple of that, goes out between two lines.

    inkstone powerloss any --rounds 3 --writer 'examples/crash/check/stream.py {dir}' \\
        --reader 'touch {dir}/lines; cat {dir}/lines'
"""

import ctypes
import os
import sys

libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
lines = ctypes.c_void_p(libc.fopen(sys.argv[1].encode() + b"/lines", b"a"))
for number in range(os.stat(sys.argv[1] + "/lines").st_size // 8, 10_000_000):
    libc.fputs(b"%07d\n" % number, lines)
    print("%07d" % number, flush=True)
