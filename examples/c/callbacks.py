"""What callbacks.c does, from Python: python3 callbacks.py LIBRARY DIRECTORY

Callbacks come on threads of the library. One that comes when the interpreter has begun to end finds
no Python, which ends its thread, and so the process (SIGABRT). So a program closes its log, and
waits for what is still due, before its interpreter ends: by atexit.
"""

import atexit
import ctypes
import os
import sys
import threading

POINTER, U64, SIZE = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t
CALLBACK = ctypes.CFUNCTYPE(None, POINTER, U64, POINTER)


class Pending(ctypes.Structure):
    _fields_ = [("log", POINTER), ("first_lsn", U64), ("lsn", U64), ("cuts", U64)]


library = ctypes.CDLL(sys.argv[1])
message = library.inkstone_error_message
message.argtypes, message.restype = [POINTER], ctypes.c_char_p
library.inkstone_error_free.argtypes = [POINTER]
library.inkstone_log_free.argtypes = [POINTER]


def call(name, types, *arguments):
    """A call whose last argument is the place for its error, which is raised."""
    function, error = getattr(library, "inkstone_" + name), POINTER()
    function.argtypes = [*types, POINTER]
    if function(*arguments, ctypes.byref(error)) != 0:
        text = message(error).decode()
        library.inkstone_error_free(error)
        raise OSError(f"{name}: {text}")


class Log:
    def __init__(self, path):
        self.log = POINTER()
        self.due, self.durable, self.failed = 0, 0, 0
        self.changed = threading.Condition()
        # The object must live as long as calls of it are due.
        self.callback = CALLBACK(self.outcome)
        call("open", [ctypes.c_char_p, POINTER, POINTER], os.fsencode(path), None,
             ctypes.byref(self.log))
        atexit.register(self.close)

    def outcome(self, context, lsn, error):
        """Runs on the thread that made the record durable: it must be quick, and what it raises
        goes to stderr alone."""
        with self.changed:
            self.due -= 1
            if error:
                self.failed += 1
            else:
                self.durable += 1
            self.changed.notify_all()

    def append(self, record):
        pending = Pending()
        call("append", [POINTER, ctypes.c_char_p, SIZE, POINTER], self.log, record, len(record),
             ctypes.byref(pending))
        with self.changed:
            self.due += 1  # Before the call: the callback may come within it.
        call("on_durable", [POINTER, CALLBACK, POINTER], ctypes.byref(pending), self.callback, None)
        return pending.lsn

    def close(self):
        """Makes everything durable. When it has returned no callback is due or running."""
        if not self.log:
            return
        try:
            call("close", [POINTER], self.log)
        finally:
            with self.changed:
                self.changed.wait_for(lambda: self.due == 0)
            library.inkstone_log_free(self.log)
            self.log = None
            print(f"{self.durable} durable, {self.failed} failed")


log = Log(sys.argv[2])
for _ in range(10000):
    log.append(b"an event")
# Here the program ends, with callbacks due.
