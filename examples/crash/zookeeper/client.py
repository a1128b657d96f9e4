"""Asks ZooKeeper: client.py ready|client|reader. Items are nodes, in the order of their names."""
import os, sys

from kazoo.client import KazooClient

server = KazooClient(f"127.0.0.1:{os.environ['PORT']}", timeout=10)
server.start(timeout=5)
server.ensure_path("/items")
items = sorted(server.get_children("/items"))
if sys.argv[1] == "client":
    number = len(items)
    while True:
        number += 1
        server.create(f"/items/item-{number:08}")
        print(f"item-{number:08}", flush=True)
elif sys.argv[1] == "reader":
    print("".join(f"{item}\n" for item in items), end="")
server.stop()
