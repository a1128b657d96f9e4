"""LevelDB as a writer and a reader: store write|read DIR default|sync|create"""
import sys

import plyvel

what, directory, setting = sys.argv[1:]
db = plyvel.DB(f"{directory}/db", create_if_missing=True)
items = [item.decode() for _, item in db]
if what == "read":
    print("".join(f"{item}\n" for item in items), end="")
    sys.exit()
number = len(items)
while True:
    number += 1
    db.put(b"%010d" % number, f"item {number}".encode(), sync=setting != "default")
    print(f"item {number}", flush=True)
