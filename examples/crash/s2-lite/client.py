"""Asks s2-lite: client.py ready|client|reader. Items are the records of one stream."""
import http.client, json, os, sys

server = http.client.HTTPConnection("127.0.0.1", int(os.environ["PORT"]), timeout=10)
PATH = "/v1/streams/items/records"
HEADERS = {"s2-basin": "crash-recipe", "content-type": "application/json"}


def ask(how, path, body=None):
    server.request(how, path, body and json.dumps(body), HEADERS)
    answer = server.getresponse()
    text = answer.read()
    if answer.status != 200:
        sys.exit(f"{how} {path}: {answer.status}: {text}")
    return json.loads(text)


number = ask("GET", f"{PATH}/tail")["tail"]["seq_num"]
if sys.argv[1] == "client":
    while True:
        item = f"item {number + 1}"
        number = ask("POST", PATH, {"records": [{"body": item}]})["end"]["seq_num"]
        print(item, flush=True)
elif sys.argv[1] == "reader":
    shown = 0
    while shown < number:
        for record in ask("GET", f"{PATH}?seq_num={shown}")["records"]:
            print(record["body"])
            shown = record["seq_num"] + 1
