"""RocksDB as a writer and a reader: store write|read DIR default|sync"""
import sys

from rocksdict import Options, Rdict, WriteOptions

what, directory, setting = sys.argv[1:]
options = Options(raw_mode=True)
options.create_if_missing(True)
db = Rdict(f"{directory}/db", options)
items = [item.decode() for item in db.values()]
if what == "read":
    print("".join(f"{item}\n" for item in items), end="")
    sys.exit()
how = WriteOptions()
how.sync = setting == "sync"
number = len(items)
while True:
    number += 1
    db.put(b"%010d" % number, f"item {number}".encode(), write_opt=how)
    print(f"item {number}", flush=True)
