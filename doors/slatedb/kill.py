#!/usr/bin/env python3
"""Kills examples/slatedb-local at random while it puts, again and again on one database: every key
that was printed as durable must be there.

    doors/slatedb/kill.py BINARY DIRECTORY ROUNDS [SEED]
"""
import random, signal, subprocess, sys, time

binary, directory, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
random.seed(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
printed, killed = set(), 0


def lost():
    found = subprocess.run([binary, directory, "scan"], capture_output=True, text=True, check=True)
    return printed - {line.split()[0] for line in found.stdout.splitlines()}


for number in range(rounds):
    out = open(f"{directory}.printed", "w+")
    process = subprocess.Popen([binary, directory, "fill", "100000", f"{number:04}"], stdout=out)
    # From the opening on.
    time.sleep(random.random() ** 2 * 0.6)
    process.send_signal(signal.SIGKILL)
    killed += process.wait() == -signal.SIGKILL
    out.seek(0)
    # A line that was cut was not printed.
    printed |= {line.strip() for line in out if line.endswith("\n")}
    if number % 20 == 19 or number + 1 == rounds:
        gone = lost()
        print(f"{number + 1} rounds, {killed} killed, {len(printed)} printed, {len(gone)} lost", flush=True)
        if gone:
            print(sorted(gone)[:10])
            sys.exit(1)
