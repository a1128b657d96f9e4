"""A row of the table, from the result of one run: row.py NAME SETTING FS PROMISE SAYS FILE"""
import json, os, re, sys


def reason(said):
    r"""Of what a program said the line that says why, or nothing.

    >>> reason("2026 INFO begins\npanic: no room\n\ngoroutine 1 [running]:\nmain.main()")
    'panic: no room'
    >>> reason("thread 'main' panicked at a.rs:1:1:\nno such table\nnote: run with")
    'no such table'
    >>> reason('Exception in thread "main" java.io.IOException: gone\n\tat Store.main(Store.java)')
    'Exception in thread "main" java.io.IOException: gone'
    >>> reason("Traceback (most recent call last):\n  File 'a'\nOSError: gone\n")
    'OSError: gone'
    >>> reason('{"msg":"begins"}\n{"level":"warn","msg":"not elected","error":"late"}')
    'not elected: late'
    >>> reason("")
    ''
    """
    lines = [line.strip() for line in said.split("\n") if line.strip()]
    for number, line in enumerate(lines):
        if "panicked at" in line:
            return "".join(lines[number + 1 : number + 2]) or line
        if re.match("panic: |fatal error: |Exception in thread", line):
            return line
    last = "".join(lines[-1:])
    words = [re.search(rf'{key}\\?":\\?"(.*?)\\?"', last) for key in ("msg", "error")]
    return ": ".join(found[1] for found in words if found) or last


def brief(what):
    r"""What is lost, or why the reader failed, for a cell of a table.

    >>> brief('line 1 is missing: "a|b"; it was acknowledged')
    'line 1 is missing: "a/b"; it was acknowledged'
    >>> brief('the reader failed: exit status: 1, with the message "no file \\"a\\""')
    'the reader failed: no file \\"a\\"'
    >>> brief('the reader failed: it did not end within 2s, with the message "--ready did not '
    ...       'succeed in time, and said: refused; the server said: begins\\npanic: no room"')
    'the reader failed: --ready did not succeed in time; the server said: panic: no room'
    >>> brief('the reader failed: exit status: 2, with the message "--start ended with exit code 2 '
    ...       'before --ready succeeded; the server said:"')
    'the reader failed: --start ended with exit code 2 before --ready succeeded'
    >>> brief('the reader failed: exit status: 1, with the message "Traceback:\\nKeyError: 1'
    ...       '\\n--reader ended with exit code 1; the server said:"')
    'the reader failed: KeyError: 1; --reader ended with exit code 1'
    >>> brief('the reader failed: it did not end within 2s, with the message "--ready did not '
    ...       'succeed in time, and said: Traceback:\\nOSError: refused; the server said:"')
    'the reader failed: --ready did not succeed in time; OSError: refused'
    >>> len(brief('the reader failed: exit status: 1, with the message "' + "a" * 999 + '"'))
    200
    """
    head, _, said = what.partition(', with the message "')
    said = said.removesuffix('"').replace(r"\n", "\n")
    said, _, server = said.partition("the server said:")
    step = re.search(r"^--\w+ (did not succeed in time|ended with exit code [^,;]*)", said, re.M)
    if step:
        ready = said[step.end() :].removeprefix(", and said:").strip("; \n")
        server = server.strip() and f"the server said: {reason(server)}"
        parts = [reason(said[: step.start()]), step[0], server or reason(ready)]
        head, said = "the reader failed: ", "; ".join(part for part in parts if part)
    elif said:
        kind = "panicked" if "panicked at" in said else "failed"
        head, said = f"the reader {kind}: ", reason(said)
    return (head + said).replace("|", "/")[:200]


def main(name, setting, fs, promise, says, file):
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
            verdict = lost + brief(what)
        elif result["not_run"] or not states:
            verdict = "not run: " + "; ".join(result["not_run"]).replace("|", "/")[:300]
        else:
            verdict = "kept" + ("" if promise == "order" else f" ({promise})")
        seen = f"{states} ({moments})"
    except (OSError, ValueError):
        with open(f"{file}.txt") as text:
            seen, verdict = "-", "not run: " + " ".join(text.read().split())[-300:]
    print(f"| `{name}/{setting}` | {version} | {fs} | {seen} | {verdict} | {says} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
