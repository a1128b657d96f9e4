"""What first.c does, from Python: python3 first.py LIBRARY DIRECTORY"""

import ctypes
import os
import sys

POINTER, U64, SIZE = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t


class Record(ctypes.Structure):
    _fields_ = [("lsn", U64), ("data", POINTER), ("size", SIZE)]


library = ctypes.CDLL(sys.argv[1])


def function(name, *arguments, result=ctypes.c_int32):
    """A function of the library. Without its types Python would pass pointers as 32-bit numbers."""
    found = getattr(library, "inkstone_" + name)
    found.argtypes, found.restype = arguments, result
    return found


message = function("error_message", POINTER, result=ctypes.c_char_p)
free_error = function("error_free", POINTER, result=None)


def call(name, *arguments):
    """A call whose last argument is the place for its error. Returns its code: 0, or 13, which is
    INKSTONE_NOT_YET."""
    error = POINTER()
    code = FUNCTIONS[name](*arguments, ctypes.byref(error))
    if error:
        text = message(error).decode()
        free_error(error)
        raise OSError(f"{name}: {text}")
    return code


PLACE = POINTER  # for a pointer or number that the call hands out
FUNCTIONS = {
    "open": function("open", ctypes.c_char_p, POINTER, PLACE, PLACE),
    "close": function("close", POINTER, PLACE),
    "append_durable": function("append_durable", POINTER, ctypes.c_char_p, SIZE, PLACE, PLACE),
    "reader_of": function("reader_of", POINTER, PLACE, PLACE),
    "cursor_new": function("cursor_new", POINTER, U64, PLACE, PLACE),
    "cursor_next": function("cursor_next", POINTER, PLACE, PLACE),
}
assert function("abi_version", result=ctypes.c_uint32)() == 1, "another ABI than this program knows"

log, reader, cursor, lsn, record = POINTER(), POINTER(), POINTER(), U64(), Record()
call("open", os.fsencode(sys.argv[2]), None, ctypes.byref(log))
order = b"one order"
call("append_durable", log, order, len(order), ctypes.byref(lsn))  # Durable when it returns.
call("reader_of", log, ctypes.byref(reader))
call("cursor_new", reader, 1, ctypes.byref(cursor))
while call("cursor_next", cursor, ctypes.byref(record)) == 0:
    print(f"{record.lsn}: {ctypes.string_at(record.data, record.size).decode()}")
function("cursor_free", POINTER, result=None)(cursor)
function("reader_free", POINTER, result=None)(reader)
call("close", log)
function("log_free", POINTER, result=None)(log)
