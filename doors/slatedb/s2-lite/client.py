#!/usr/bin/env python3
"""A client of s2-lite that tests acknowledged appends, and measures.

    client.py write SERVER DIR WAL     appends until it is killed, and prints acknowledged records
    client.py read SERVER DIR WAL      prints the records that are there
    client.py measure SERVER LOAD DIR ROUNDS SECONDS
                                       rates and processor times of each WAL, by turns; LOAD is the
                                       program of load.c

`write` and `read` are what `inkstone powerloss any` takes. SERVER is the binary of build.sh. A WAL:
`inkstone`; `files` is s2-lite's own with `--wal-local-root`; `objects` has no option, so its WAL is
among its objects. The patch changes nothing unless `--wal-inkstone` is given.
"""
import http.client, json, os, socket, subprocess, sys, time

BASIN, STREAM = "inkstone-measures", "records"
RESOURCES = json.dumps({"basins": [{"name": BASIN, "streams": [{"name": STREAM}]}]})
PATH = f"/v1/streams/{STREAM}/records"
HEADERS = {"s2-basin": BASIN, "content-type": "application/json"}
OPTIONS = {"inkstone": "--wal-inkstone", "files": "--wal-local-root", "objects": None}


class Server:
    """s2-lite on a directory, until the block ends; then it is killed."""

    def __init__(self, binary, directory, wal, **environment):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [binary, "--local-root", f"{directory}/objects", "--port", str(self.port)]
        command += ["--no-dashboard", "--init-file", "/dev/stdin"]
        if OPTIONS[wal]:
            command += [OPTIONS[wal], f"{directory}/wal"]
        environment = {**os.environ, "RUST_LOG": "error", **environment}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=sys.stderr)
        self.process.stdin.write(RESOURCES.encode())
        self.process.stdin.close()

    def __enter__(self):
        while True:
            if self.process.poll() is not None:
                sys.exit(f"the server ended with {self.process.returncode}")
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port)
                connection.request("GET", "/health")
                connection.getresponse().read()
                self.connection = connection
                return self
            except OSError:
                time.sleep(0.005)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def ask(self, method, path, body=None):
        self.connection.request(method, path, body and json.dumps(body), HEADERS)
        response = self.connection.getresponse()
        answer = json.loads(response.read() or b"null")
        if response.status != 200:
            sys.exit(f"{method} {path}: {response.status} {answer}")
        return answer

    def tail(self):
        return self.ask("GET", f"{PATH}/tail")["tail"]["seq_num"]


# A second server is not to wait for a first one that is killed.
QUICK = {"SL8_MANIFEST_POLL_INTERVAL": "20ms"}


def write(binary, directory, wal):
    with Server(binary, directory, wal, **QUICK) as server:
        number = server.tail()
        while True:
            body = f"record {number}"
            number = server.ask("POST", PATH, {"records": [{"body": body}]})["end"]["seq_num"]
            print(body, flush=True)


def read(binary, directory, wal):
    with Server(binary, directory, wal, **QUICK) as server:
        number, tail = 0, server.tail()
        while number < tail:
            for record in server.ask("GET", f"{PATH}?seq_num={number}")["records"]:
                print(record["body"])
                number = record["seq_num"] + 1


def measure(binary, load, directory, rounds, seconds):
    for number in range(int(rounds)):
        for wal in OPTIONS:
            place = f"{directory}/{wal}-{number}"
            os.makedirs(f"{place}/objects")
            with Server(binary, place, wal) as server:
                for clients in ["1", "64"]:
                    for what in [[], ["GET", "/health"]]:
                        arguments = [str(server.port), str(server.process.pid), clients, seconds]
                        done = subprocess.run([load, *arguments, *what], capture_output=True)
                        print(number, wal, clients, *what, done.stdout.decode().strip(),
                              done.stderr.decode().strip(), flush=True)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    {"write": write, "read": read, "measure": measure}[command](*arguments)
