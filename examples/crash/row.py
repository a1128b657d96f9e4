"""A row of the table, from the result of one run: row.py NAME SETTING FS PROMISE SAYS FILE"""
import json, os, re, sys


def brief(what):
    """Of a traceback or a panic the line that says why."""
    head, _, message = what.partition(', with the message "')
    lines = [line for line in re.split(r"\\n|\n", message.rstrip('"')) if line.strip()]
    for number, line in enumerate(lines):
        if "panicked at" in line:
            return "the reader panicked: " + lines[number + 1]
    return head if not lines else f"the reader failed: {lines[-1]}"


name, setting, fs, promise, says, file = sys.argv[1:]
promise, *words = promise.split(",")
try:
    with open(f"{os.environ['CRASH']}/{name}/version") as version:
        version = version.read().strip()
except OSError:
    version = "-"
try:
    with open(f"{file}.json") as result:
        (result,) = json.load(result)
    states = sum(one["states"] for one in result["classes"])
    counts = dict(result["counts"])
    moments = counts.get("moments at which something had changed", 0)
    if result["violations"]:
        what = re.sub(r"^round \d+: |; a copy of .*", "", result["violations"][0]["what"])
        lost = "lost, as documented: " if "may-lose" in words else "**lost**: "
        verdict = lost + brief(what).replace("|", "/")[:200]
    else:
        verdict = "kept" + ("" if promise == "order" else f" ({promise})")
    seen = f"{states} ({moments})"
except (OSError, ValueError):
    with open(f"{file}.txt") as text:
        seen, verdict = "-", "not run: " + " ".join(text.read().split())[-300:]
print(f"| `{name}/{setting}` | {version} | {fs} | {seen} | {verdict} | {says} |", flush=True)
