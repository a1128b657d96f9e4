"""Asks etcd: client.py ready|client|reader. Items are keys, in the order of their numbers."""
import base64, http.client, json, os, sys

server = http.client.HTTPConnection("127.0.0.1", int(os.environ["PORT"]), timeout=10)


def ask(what, **words):
    server.request("POST", f"/v3/kv/{what}", json.dumps(words))
    answer = server.getresponse()
    text = answer.read()
    if answer.status != 200:
        sys.exit(f"{what}: {answer.status}: {text}")
    return json.loads(text)


def coded(text):
    return base64.b64encode(text.encode()).decode()


def items():
    found = ask("range", key=coded("item "), range_end=coded("item!")).get("kvs", [])
    return [base64.b64decode(one["key"]).decode() for one in found]


if sys.argv[1] == "client":
    number = len(items())
    while True:
        number += 1
        ask("put", key=coded(f"item {number:08}"), value=coded("x"))
        print(f"item {number:08}", flush=True)
else:
    print("".join(f"{item}\n" for item in items()), end="")
