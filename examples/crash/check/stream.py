#!/usr/bin/env python3
"""What a C stream keeps when its process is killed: each line that is in its buffer is also printed.

    inkstone powerloss any --writer 'stream.py {dir}' --reader 'touch {dir}/lines; cat {dir}/lines'
"""

import ctypes
import sys

libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
lines = ctypes.c_void_p(libc.fopen(sys.argv[1].encode() + b"/lines", b"a"))
for number in range(1 << 40):
    libc.fputs(b"%d\n" % number, lines)
    print(number, flush=True)
