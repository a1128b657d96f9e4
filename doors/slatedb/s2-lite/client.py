#!/usr/bin/env python3
"""A client of s2-lite that tests acknowledged appends, and measures them.

    client.py write SERVER DIR WAL     appends until it is killed, and prints acknowledged records
    client.py read SERVER DIR WAL      prints the records that are there
    client.py measure SERVER DIR [ROUNDS [SECONDS]]   the WALs in turns, beside their floors

`write` and `read` are what `inkstone powerloss any` takes. SERVER is the binary of build.sh. A WAL:
`inkstone`; `files` is s2-lite's own with `--wal-local-root`; `objects` has no option, so its WAL is
among its objects. `files-1ms` and `objects-1ms` flush every millisecond where s2-lite flushes every
five. The patch changes nothing unless `--wal-inkstone` is given.
"""
import http.client, json, os, select, shutil, socket, statistics, subprocess, sys, time

BASIN, STREAM = "inkstone-measures", "records"
RESOURCES = json.dumps({"basins": [{"name": BASIN, "streams": [{"name": STREAM}]}]})
PATH = f"/v1/streams/{STREAM}/records"
HEADERS = {"s2-basin": BASIN, "content-type": "application/json"}
OPTIONS = {"inkstone": "--wal-inkstone", "files": "--wal-local-root", "objects": None}


class Server:
    """s2-lite on a directory, until the block ends; then it is killed."""

    def __init__(self, binary, directory, wal, **environment):
        kind, _, interval = wal.partition("-")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [binary, "--local-root", f"{directory}/objects", "--port", str(self.port)]
        command += ["--no-dashboard", "--init-file", "/dev/stdin"]
        if OPTIONS[kind]:
            command += [OPTIONS[kind], f"{directory}/wal"]
        environment = {**os.environ, "RUST_LOG": "error", **environment}
        if interval:
            environment["SL8_FLUSH_INTERVAL"] = interval
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


def load(port, clients, seconds, request):
    """So many clients, each of which sends the next request when it has its answer: the latencies
    in microseconds, and the answers of a second."""
    poll, sockets, sent = select.epoll(), {}, {}
    for _ in range(clients):
        client = socket.create_connection(("127.0.0.1", port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[client.fileno()] = client
        poll.register(client, select.EPOLLIN)
    latencies, began = [], time.perf_counter()
    for number, client in sockets.items():
        sent[number] = time.perf_counter()
        client.sendall(request)
    until = began + seconds
    while (now := time.perf_counter()) < until:
        for number, _ in poll.poll(1):
            client = sockets[number]
            answer = client.recv(65536)
            head, end, body = answer.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r", 1)[0] or 0)
            if not head.startswith(b"HTTP/1.1 200") or not end or len(body) != length:
                sys.exit(f"an answer: {answer}")
            now = time.perf_counter()
            latencies.append((now - sent[number]) * 1e6)
            sent[number] = now
            client.sendall(request)
    took = now - began
    for client in sockets.values():
        client.close()
    return latencies, len(latencies) / took


def overwrites(directory, seconds):
    """The floor: bare durable overwrites of 4096 bytes."""
    path = f"{directory}/overwritten"
    with open(path, "wb") as file:
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())
    file = os.open(path, os.O_WRONLY | os.O_DSYNC)
    latencies, until, number = [], time.perf_counter() + seconds, 0
    while (began := time.perf_counter()) < until:
        os.pwrite(file, bytes([number % 251]) * 4096, number % 256 * 4096)
        latencies.append((time.perf_counter() - began) * 1e6)
        number += 1
    os.close(file)
    os.remove(path)
    return latencies


def measure(binary, directory, rounds=7, seconds=2.0):
    body = json.dumps({"records": [{"body": "x" * 128}]})
    lines = [f"POST {PATH} HTTP/1.1", "host: localhost", f"content-length: {len(body)}"]
    append = "\r\n".join(lines + [f"{k}: {v}" for k, v in HEADERS.items()] + ["", body]).encode()
    health = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    found = {}

    def note(what, value):
        found.setdefault(what, []).append(value)

    def percentile(latencies, part):
        return sorted(latencies)[int((len(latencies) - 1) * part)]

    wals = ["inkstone", "files", "files-1ms", "objects", "objects-1ms"]
    for number in range(int(rounds)):
        # Another WAL is first in each round.
        for wal in wals[number % len(wals):] + wals[:number % len(wals)]:
            place = f"{directory}/{wal}-{number}"
            shutil.rmtree(place, ignore_errors=True)
            os.makedirs(place)
            with Server(binary, place, wal) as server:
                load(server.port, 1, 0.2, append)
                latencies, _ = load(server.port, 1, float(seconds), append)
                note(f"{wal}: serial, p50 us", percentile(latencies, 0.5))
                note(f"{wal}: serial, p99 us", percentile(latencies, 0.99))
                latencies, rate = load(server.port, 64, float(seconds), append)
                note(f"{wal}: 64 clients, appends/s", rate)
                note(f"{wal}: 64 clients, p99 us", percentile(latencies, 0.99))
                if wal == "inkstone":
                    trip, _ = load(server.port, 1, 0.5, health)
                    note("floor: an HTTP round trip, p50 us", percentile(trip, 0.5))
                    note("floor: 64 clients, round trips/s", load(server.port, 64, 0.5, health)[1])
            shutil.rmtree(place)
        bare = percentile(overwrites(directory, 0.5), 0.5)
        note("floor: a durable overwrite, p50 us", bare)
        trip = found["floor: an HTTP round trip, p50 us"][-1]
        serial = found["inkstone: serial, p50 us"][-1]
        note("ratio: inkstone, serial p50 to both floors", serial / (bare + trip))
        for wal in wals[1:]:
            mine, theirs = (found[f"{w}: 64 clients, appends/s"][-1] for w in ("inkstone", wal))
            note(f"ratio: 64 clients, inkstone to {wal}", mine / theirs)
    # Of seven rounds, the least and the greatest are an interval for the median of 98 percent.
    print(f"{rounds} rounds in turns, {seconds} s each: the median, the least and the greatest")
    for what, values in sorted(found.items()):
        row = statistics.median(values), min(values), max(values)
        print(f"{what:<44}", *(f"{value:>10.2f}" for value in row))


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    {"write": write, "read": read, "measure": measure}[command](*arguments)
