// Results to draw: real ones that the command has just measured, and what may become of a result.
// Owns: how they are spoiled. May not touch: how a page looks.

const copy = (value) => structuredClone(value);
const NASTY =
  `</script><img src=x onerror="document.title='taken'"><!-- \`x\` "q" 'a' & $& <script>`;
const relative = (speedup, verdict) =>
  ({ speedup, low: speedup * 0.9, high: speedup * 1.15, verdict });

// The result with a bill for each way: where tracing was not possible, made-up ones.
export function traced(result) {
  const full = copy(result);
  for (const way of full.tables[0].ways.filter((way) => way.rounds.length)) {
    if (way.bill) continue;
    const counts = { "data-write": { requests: 20, bytes: 81920 },
      "journal-write": { requests: 40, bytes: 327680 }, flush: { requests: 20, bytes: 0 } };
    way.bill = { commits: 20, device: "vda", shared: true, requests: counts, fua_writes: 0,
      submitters: [], cross_check: null, unattributed: [], lost_events: 0, notes: [] };
  }
  return full;
}

// A run that failed half way: ways without figures, an early end, and nothing that only root sees.
export function halfEmpty(result) {
  const half = copy(result);
  half.interrupted = true;
  half.machine.trace_refused = "tracing needs root";
  const table = half.tables[0];
  const stop = (why) => (way) => ({ ...way, rounds: [], latency: null, relative: null, bill: null,
    figures: [], missing: why });
  const not_run = "not run: the run ended before";
  table.finding = null;
  table.ways = table.ways.map((way, n) => {
    if (n % 3 === 1) return stop("the kernel answered EOPNOTSUPP on purpose")(way);
    return n % 3 === 2 ? stop(not_run)(way) : { ...way, bill: null, relative: null };
  });
  const place = { ...table.place, name: "a place that was never reached" };
  half.tables.push({ ...copy(table), place, ways: table.ways.map(stop(not_run)) });
  half.tables.push({ ...copy(table), title: "empty", ways: [] });
  const missing = stop("no io_uring here")(copy(table.ways[0]));
  half.tables.push({ ...copy(table), name: "pool", title: "Nothing came of it",
    unit: "operations/s", ways: [missing] });
  half.later_field = { not: ["known"] };
  return half;
}

// Names that would be markup if they were not escaped: directories are called what users like.
// Names stay equal where they refer to each other: all of them are spoiled alike.
export function nasty(result) {
  const bad = copy(result);
  const kept = ["kind", "verdict", "source", "unit", "what"];
  const spoil = (value) => {
    for (const [name, child] of Object.entries(value || {})) {
      if (typeof child === "string" && !kept.includes(name)) value[name] = `${NASTY}${child}`;
      else if (child && typeof child === "object") spoil(child);
    }
  };
  spoil(bad);
  return bad;
}

// Several places, with one that could not be compared.
export function places(result) {
  const many = copy(result);
  const names = ["ext4, direct loop", "xfs, direct loop", "btrfs-nodatacow, buffered loop",
    "tmpfs"];
  many.tables = names.map((name, n) => {
    const run = copy(many.tables[0]);
    run.place.name = name;
    const best = run.ways.at(-1).name;
    const sentence = `On ${name} the best is \`${best}\`.`;
    run.finding = { why: null, sentence, best: n > 1 ? best : null };
    if (name === "tmpfs") run.finding = null;
    return run;
  });
  return many;
}

// Tables of other work.
export function experiments(result) {
  const place = result.tables[0].place;
  const { latency } = result.tables[0].ways[0];
  const empty = { missing: null, rounds: [], relative: null, facts: [],
    latency: null, figures: [], bill: null, recounts: [], durable: null };
  const way = (series, threads, value, more) => ({
    ...empty,
    name: threads ? `${series}, ${threads} threads` : series,
    rounds: [0.95, 1, 1.04, 0.99, 1.1].map((n, number) =>
      ({ number, turn: 0, commits: Math.round(n * value), total_ns: 1e9 })),
    figures: [{ name: "system time", unit: "ns per operation", value: Math.max(1, 90000 - value) }],
    ...more,
  });
  const threads = [2, 8, 32, 64, 128, 256, 512];
  const [pooled, ringed] = [[9e3, 22e3, 39e3, 41e3, 37e3, 24e3, 19e3],
    [11e3, 30e3, 52e3, 60e3, 61e3, 61.5e3, 61.2e3]];
  const pool = threads.map((x, n) => way("pool", x, pooled[n], n ? {} : { latency }));
  const ring = threads.map((x, n) => way("io_uring", x, ringed[n]));
  const base = { place, rounds: 5, notes: ["checked byte by byte"],
    random_order: true, baseline: null, finding: null };
  const sentence = "A pool gains nothing beyond 64 threads; `io_uring` reaches 1.5 times as much.";
  const finding = { sentence, best: null };
  const pools = { ...base, name: "pool", title: "A pool of threads beside io_uring",
    unit: "operations/s", ways: [...pool, ...ring], finding };
  const rates = { ...base, name: "read", title: "Reading a file", unit: "bytes/s",
    baseline: "read, 4 KiB", ways: [
    way("read, 4 KiB", 0, 1.1e9, { latency }),
    way("O_DIRECT, 8 in flight", 0, 2.4e9, { relative: relative(2.18, "faster") }),
    { ...empty, name: "mmap", missing: "residency could not be proved" },
  ] };
  return { ...copy(result), tables: [pools, rates] };
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
    disk("/mnt/a-name-that-is-far-too-long-for-its-column", 4200,
      { relative: relative(0.03, "slower") }),
    disk("/dev/shm", 3, { device: null,
      refused: "it is memory (tmpfs), and nothing there survives a power loss" }),
    disk("/mnt/gone", 0, { per_commit_ns: null, best: null,
      refused: "no durable way could be measured there" }),
  ] };
}

// Statements with every answer, of times and of counts.
export function statements(result) {
  const one = (id, verdict, band, found, reason) => ({
    id,
    statement: `What somebody said of ${id}, at such length that it takes more than one line of ` +
      "a table.",
    source: "a/thread#17",
    link: null,
    band,
    verdict,
    found: found && { value: found[0], low: found[1], high: found[2], unit: found[3] || "times",
      of: "new fsync : reuse fdatasync", place: "ext4" },
    reason: reason || null,
  });
  return { ...copy(result), command: "inkstone lab all --json all.json", statements: [
    one("overwrite-twice", "confirmed", "1.5 to 3", [1.9, 1.7, 2.16]),
    one("insert-range-slower", "refuted", "1.03 or more", [0.0039, 0.002, 0.0051]),
    one("link-saves", "cannot-tell", "1.03 or more", [1.09, 0.97, 1.21]),
    one("direct-not-durable", "confirmed", "0.1 or less",
      [0.016, 0.016, 0.016, "flushes a commit"]),
    one("overwrite-no-journal", "confirmed", "0", [0, 0, 0, "journal writes a commit"]),
    one("append-journals-20k", "not-run", "16 to 24", null,
      "it needs root: a file system on a loop device"),
  ] };
}
