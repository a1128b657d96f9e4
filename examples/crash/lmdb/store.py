"""LMDB as a writer and a reader: store write|read DIR default|no-meta-sync|no-sync|write-map"""
import sys

import lmdb

what, directory, setting = sys.argv[1:]
options = {
    "default": {},
    "no-meta-sync": {"metasync": False},
    "no-sync": {"sync": False},
    "write-map": {"writemap": True},
}[setting]
env = lmdb.open(f"{directory}/db", map_size=64 << 20, **options)
if what == "read":
    with env.begin() as all:
        for _, item in all.cursor():
            print(item.decode())
    sys.exit()
while True:
    with env.begin(write=True) as change:
        number = change.stat()["entries"] + 1
        change.put(b"%010d" % number, f"item {number}".encode())
    print(f"item {number}", flush=True)
