// Results to draw: real ones that the command has just measured, and what may become of a result.
// Owns: how they are spoiled. May not touch: how a page looks.

const copy = (value) => structuredClone(value);
const NASTY = `</script><img src=x onerror="document.title='taken'"><!-- \`x\` "q" 'a' & $& <script>`;
const relative = (speedup, verdict) => ({ speedup, low: speedup * 0.9, high: speedup * 1.15, verdict });

// The result with a bill and a commit request by request for each way: where tracing was not
// possible, made-up ones.
export function traced(result) {
  const full = copy(result);
  for (const { outcome } of full.runs[0].cells.filter((cell) => cell.outcome.kind === "measured")) {
    if (outcome.bill?.timeline?.length) continue;
    const request = (what, issued_ns, completed_ns, bytes) =>
      ({ device: "vda", what, issued_ns, completed_ns, bytes, sector: 4096, flags: "WS", who: "made up" });
    const requests = [request("data write", 5000, 60000, 4096), request("flush", 61000, null, 0)];
    const layer = { device: "vda", role: "file system", flushes: 20, fua_writes: 0,
      data_writes: { requests: 20, bytes: 81920 }, journal_writes: { requests: 40, bytes: 327680 } };
    outcome.bill = { source: "trace", commits: 20, lost_events: 0, layers: [layer],
      timeline: [{ number: 7, total_ns: outcome.commit.p50_ns, requests }] };
  }
  return full;
}

// A run that failed half way: ways without figures, an early end, and nothing that only root sees.
export function halfEmpty(result) {
  const half = copy(result);
  half.interrupted = true;
  half.machine.trace_refused = "tracing needs root";
  const run = half.runs[0];
  run.finding = null;
  run.cells.forEach((cell, n) => {
    if (n % 3 === 1) cell.outcome = { kind: "invalid", reason: "the kernel answered EOPNOTSUPP on purpose" };
    else if (n % 3 === 2) cell.outcome = { kind: "not-run" };
    else {
      cell.outcome.bill = cell.outcome.relative = null;
      delete cell.outcome.over_time;
    }
  });
  const cells = run.cells.map((cell) => ({ ...cell, outcome: { kind: "not-run" } }));
  half.runs.push({ ...copy(run), place: { name: "a place that was never reached" }, cells }, { name: "empty" });
  const rows = [{ name: "a row", invalid: "no io_uring here" }];
  half.experiments = [{ name: "pool", title: "Nothing came of it", rows }];
  half.later_field = { not: ["known"] };
  return half;
}

// Names that would be markup if they were not escaped: directories are called what users like.
// Names stay equal where they refer to each other: all of them are spoiled alike.
export function nasty(result) {
  const bad = copy(result);
  const spoil = (value) => {
    for (const [name, child] of Object.entries(value || {})) {
      if (typeof child === "string" && !["kind", "verdict", "source"].includes(name)) value[name] = `${NASTY}${child}`;
      else if (child && typeof child === "object") spoil(child);
    }
  };
  spoil(bad);
  return bad;
}

// Several places, with one that could not be compared.
export function places(result) {
  const many = copy(result);
  const names = ["ext4, direct loop", "xfs, direct loop", "btrfs-nodatacow, buffered loop", "tmpfs"];
  many.runs = names.map((name, n) => {
    const run = copy(many.runs[0]);
    run.place.name = name;
    const [best, naive] = [run.cells.at(-1).name, run.cells[0].name];
    const speedup = relative(0.9 + n * 0.7, n > 1 ? "faster" : "tie");
    run.finding = name === "tmpfs" ? null : { sentence: `On ${name} the best is \`${best}\`.`, best, naive, speedup };
    return run;
  });
  return many;
}

// Experiments as lab/lab/src/experiment describes them, with curves, knees and rows without a place
// on an axis.
export function experiments(result) {
  const place = result.runs[0].place;
  const latency = result.runs[0].cells[0].outcome.commit;
  const row = (series, x, value, more) => ({
    name: x ? `${series}, ${x} threads` : series,
    series,
    x: x || null,
    samples: [0.95, 1, 1.04, 0.99, 1.1].map((n) => n * value),
    figures: [{ name: "system time", unit: "ns per operation", value: 90000 - value }],
    ...more,
  });
  const threads = [2, 8, 32, 64, 128, 256, 512];
  const pool = threads.map((x, n) => row("pool", x, [9e3, 22e3, 39e3, 41e3, 37e3, 24e3, 19e3][n], n ? {} : { latency }));
  const ring = threads.map((x, n) => row("io_uring", x, [11e3, 30e3, 52e3, 60e3, 61e3, 61.5e3, 61.2e3][n]));
  const base = { command: "inkstone lab e7", place, rounds: 5, seed: 17, notes: ["checked byte by byte"], knees: [] };
  const sentence = "A pool gains nothing beyond 64 threads; `io_uring` reaches 1.5 times as much.";
  const curve = { ...base, name: "pool", title: "A pool of threads beside io_uring", unit: "operations/s",
    x_name: "threads", rows: [...pool, ...ring], knees: [["pool", 64], ["io_uring", 128]], finding: { sentence } };
  const rates = { ...base, name: "read", title: "Reading a file", unit: "bytes/s", baseline: "read, 4 KiB", rows: [
    row("read, 4 KiB", 0, 1.1e9, { latency }),
    row("O_DIRECT, 8 in flight", 0, 2.4e9, { relative: relative(2.18, "faster") }),
    { name: "mmap", series: "mmap", samples: [], invalid: "residency could not be proved" },
  ] };
  return { ...copy(result), runs: [], fallocate: [], experiments: [curve, rates] };
}

// Several disks, as lab/lab/src/disks.rs describes the answer: one that ties, one refused, one
// without any figure.
export function disks(result) {
  const disk = (directory, us, more) => ({ directory, device: "vda", refused: null, relative: null,
    best: "reuse direct rwf-dsync", per_commit_ns: us * 1e3, ...more });
  const sentence = "/mnt/nvme and /mnt/ssd tie: 126 us per durable commit on the first.";
  return { ...places(result), command: "inkstone lab /mnt/nvme /mnt/ssd", sentence, disks: [
    disk("/mnt/nvme", 126),
    disk("/mnt/ssd", 129, { relative: { speedup: 0.98, low: 0.88, high: 1.13, verdict: "tie" } }),
    disk("/mnt/a-name-that-is-far-too-long-for-its-column", 4200, { relative: relative(0.03, "slower") }),
    disk("/dev/shm", 3, { device: null, refused: "it is memory (tmpfs), and nothing there survives a power loss" }),
    disk("/mnt/gone", 0, { per_commit_ns: null, best: null, refused: "no durable way could be measured there" }),
  ] };
}

// Claims with every answer, of times and of counts, as lab/lab/src/claims describes them.
export function claims(result) {
  const claim = (id, verdict, band, found, reason) => ({
    id,
    statement: `What somebody said of ${id}, at such length that it takes more than one line of a table.`,
    source: "a/thread#17",
    band,
    verdict,
    found: found && { value: found[0], low: found[1], high: found[2], unit: found[3] || "times", of: "new fsync : reuse fdatasync" },
    reason: reason || null,
  });
  return { ...copy(result), command: "inkstone lab claims --json claims.json", claims: [
    claim("overwrite-twice", "confirmed", "1.5 to 3", [1.9, 1.7, 2.16]),
    claim("posix-fallocate-slow", "refuted", "1.03 or more", [0.0039, 0.002, 0.0051]),
    claim("link-saves", "cannot-tell", "1.03 or more", [1.09, 0.97, 1.21]),
    claim("direct-not-durable", "confirmed", "0.1 or less", [0.016, 0.016, 0.016, "flushes a commit"]),
    claim("overwrite-no-journal", "confirmed", "0", [0, 0, 0, "journal writes a commit"]),
    claim("append-journals-20k", "not-run", "16 to 24", null, "it needs root: a file system on a loop device"),
  ] };
}
