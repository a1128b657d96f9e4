"""ZODB's FileStorage as a writer and a reader: store write|read DIR default"""
import sys

import transaction
import ZODB
from BTrees.LOBTree import LOBTree

what, directory, setting = sys.argv[1:]
root = ZODB.connection(f"{directory}/Data.fs").root
if what == "read":
    for item in root.items.values() if hasattr(root, "items") else ():
        print(item)
    sys.exit()
if not hasattr(root, "items"):
    root.items = LOBTree()
number = len(root.items)
while True:
    number += 1
    root.items[number] = f"item {number}"
    transaction.commit()
    print(f"item {number}", flush=True)
