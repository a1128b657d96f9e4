// Results to draw: real ones that the command has just measured, and what may become of a result.
// Owns: how they are spoiled. May not touch: how a page looks.

const copy = (value) => structuredClone(value);
const NASTY = `</script><img src=x onerror="document.title='taken'"><!-- \`x\` "q" 'a' & $& <script>`;

// The result with a bill and a commit request by request for each way: where tracing was not possible, made-up ones.
export function traced(result) {
  const full = copy(result);
  for (const { outcome } of full.runs[0].cells.filter((cell) => cell.outcome.kind === "measured")) {
    if (outcome.bill?.timeline?.length) continue;
    const request = (what, issued_ns, completed_ns, bytes) => ({
      device: "vda",
      what,
      issued_ns,
      completed_ns,
      bytes,
      sector: 4096,
      flags: "WS",
      who: "made up",
    });
    const layer = {
      device: "vda",
      role: "file system",
      flushes: 20,
      fua_writes: 0,
      data_writes: { requests: 20, bytes: 81920 },
      journal_writes: { requests: 40, bytes: 327680 },
    };
    outcome.bill = {
      source: "trace",
      commits: 20,
      lost_events: 0,
      notes: [],
      layers: [layer],
      timeline: [
        {
          number: 7,
          total_ns: outcome.commit.p50_ns,
          requests: [request("data write", 5000, 60000, 4096), request("flush", 61000, null, 0)],
        },
      ],
    };
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
    if (n % 3 === 1) cell.outcome = { kind: "invalid", reason: "fallocate: the kernel answered EOPNOTSUPP on purpose" };
    else if (n % 3 === 2) cell.outcome = { kind: "not-run" };
    else {
      cell.outcome.bill = null;
      cell.outcome.relative = null;
      delete cell.outcome.over_time;
    }
  });
  half.runs.push({
    ...copy(run),
    place: { name: "a place that was never reached" },
    cells: run.cells.map((cell) => ({ ...cell, outcome: { kind: "not-run" } })),
  });
  half.runs.push({ name: "empty" });
  half.experiments = [{ name: "pool", title: "Nothing came of it", rows: [{ name: "a row", invalid: "no io_uring here" }] }];
  half.later_field = { not: ["known"] };
  return half;
}

// Nothing at all.
export const nothing = () => ({ schema_version: 1, runs: [] });

// Names that would be markup if they were not escaped: directories are called what users like.
export function nasty(result) {
  const bad = copy(result);
  const spoil = (value) => {
    for (const [name, child] of Object.entries(value || {})) {
      if (typeof child === "string" && !["kind", "verdict", "source"].includes(name)) value[name] = `${NASTY}${child}`;
      else if (child && typeof child === "object") spoil(child);
    }
  };
  // Names stay equal where they refer to each other: all of them are spoiled alike.
  spoil(bad);
  return bad;
}

// Five places: parts that fold, and the chart of all places.
export function places(result) {
  const many = copy(result);
  const one = many.runs[0];
  many.runs = ["ext4, direct loop", "ext4, buffered loop", "xfs, direct loop", "btrfs-nodatacow, buffered loop", "tmpfs"].map(
    (name, n) => {
      const run = copy(one);
      run.place.name = name;
      run.finding = {
        sentence: `On ${name} the best durable way is \`${run.cells.at(-1).name}\`.`,
        best: run.cells.at(-1).name,
        naive: run.cells[0].name,
        engines: [],
        speedup: { speedup: 0.9 + n * 0.7, low: 0.8 + n * 0.5, high: 1.1 + n, verdict: n > 1 ? "faster" : "tie" },
      };
      return run;
    },
  );
  many.runs[4].finding = null;
  return many;
}

// Experiments as lab/lab/src/experiment describes them, with curves, knees and rows without a place on an axis.
export function experiments(result) {
  const made = { ...copy(result), runs: [], fallocate: [], aa: null };
  const place = result.runs[0].place;
  const latency = result.runs[0].cells[0].outcome.commit;
  const row = (series, x, value, more) => ({
    name: x ? `${series}, ${x} threads` : series,
    series,
    x: x || null,
    invalid: null,
    samples: [0.95, 1, 1.04, 0.99, 1.1].map((n) => n * value),
    relative: null,
    latency: null,
    figures: [
      { name: "context switches", unit: "per operation", value: 1 + value / 40000 },
      { name: "system time", unit: "ns per operation", value: 90000 - value },
    ],
    ...more,
  });
  const threads = [2, 8, 32, 64, 128, 256, 512];
  const pool = threads.map((x, n) => row("pool", x, [9000, 22000, 39000, 41000, 37000, 24000, 19000][n], n ? {} : { latency }));
  const ring = threads.map((x, n) =>
    row("io_uring", x, [11000, 30000, 52000, 60000, 61000, 61500, 61200][n], n === 6 ? { latency } : {}),
  );
  const base = {
    command: "inkstone lab pool --json pool.json",
    place,
    unit: "operations/s",
    baseline: null,
    rounds: 5,
    seed: 17,
    notes: ["reads were checked byte by byte"],
    knees: [],
    finding: null,
  };
  made.experiments = [
    {
      ...base,
      name: "pool",
      title: "A pool of threads beside io_uring",
      x_name: "threads",
      rows: [...pool, ...ring],
      knees: [
        ["pool", 64],
        ["io_uring", 128],
      ],
      finding: { sentence: "A pool gains nothing beyond 64 threads; `io_uring` from one thread reaches 1.5 times as much." },
    },
    {
      ...base,
      name: "read",
      title: "Reading a file",
      x_name: null,
      unit: "bytes/s",
      baseline: "read, 4 KiB",
      rows: [
        row("read, 4 KiB", 0, 1.1e9, { latency }),
        row("O_DIRECT, 8 in flight", 0, 2.4e9, { relative: { speedup: 2.18, low: 2.05, high: 2.3, verdict: "faster" } }),
        {
          name: "mmap",
          series: "mmap",
          x: null,
          samples: [],
          invalid: "residency could not be proved",
          relative: null,
          latency: null,
          figures: [],
        },
      ],
    },
  ];
  return made;
}

// Several disks, as lab/lab/src/disks.rs describes the answer: one that ties, one refused, one without any figure.
export function disks(result) {
  const many = places(result);
  const relative = (speedup, verdict) => ({ speedup, low: speedup * 0.9, high: speedup * 1.15, verdict });
  const disk = (directory, us, more) => ({
    directory,
    device: "vda",
    refused: null,
    best: "reuse direct rwf-dsync",
    per_commit_ns: us * 1e3,
    relative: null,
    ...more,
  });
  return {
    ...many,
    command: "inkstone lab /mnt/nvme /mnt/ssd /mnt/a-name-that-is-far-too-long-for-its-column /dev/shm /mnt/gone",
    sentence: "/mnt/nvme and /mnt/ssd tie: 126 us per durable commit on the first.",
    disks: [
      disk("/mnt/nvme", 126),
      disk("/mnt/ssd", 129, { relative: relative(0.98, "tie") }),
      disk("/mnt/a-name-that-is-far-too-long-for-its-column", 4200, { relative: relative(0.03, "slower") }),
      disk("/dev/shm", 3, { device: null, refused: "it is memory (tmpfs), and nothing there survives a power loss" }),
      disk("/mnt/gone", 0, { per_commit_ns: null, best: null, refused: "no durable way could be measured there" }),
    ],
  };
}

// Claims with every answer, of times and of counts, as lab/lab/src/claims describes them.
export function claims(result) {
  const claim = (id, verdict, band, found, more) => ({
    id,
    statement: `What somebody said of ${id}, at such length that it takes more than one line of a table to say it.`,
    source: "a/thread#17",
    band,
    verdict,
    found: found && { value: found[0], low: found[1], high: found[2], unit: found[3] || "times", of: "new fsync : reuse fdatasync" },
    reason: null,
    ...more,
  });
  return {
    ...copy(result),
    command: "inkstone lab claims --json claims.json",
    claims: [
      claim("overwrite-twice", "confirmed", "1.5 to 3", [1.9, 1.7, 2.16]),
      claim("posix-fallocate-slow", "refuted", "1.03 or more", [0.0039, 0.002, 0.0051]),
      claim("link-saves", "cannot-tell", "1.03 or more", [1.09, 0.97, 1.21]),
      claim("prealloc-near-reuse", "refuted", "0.95 to 1.1", [61, 51.6, 75]),
      claim("direct-not-durable", "confirmed", "0.1 or less", [0.016, 0.016, 0.016, "flushes a commit"]),
      claim("overwrite-no-journal", "confirmed", "0", [0, 0, 0, "journal writes a commit"]),
      claim("append-journals-20k", "not-run", "16 to 24", null, { reason: "it needs root: a file system on a loop device" }),
    ],
  };
}

// Scores of several places, one of which could not be scored, and one where the rule's way is the best itself.
export function scores(result) {
  const row = (name, series, value, relative) => ({
    name,
    series,
    x: null,
    invalid: null,
    samples: [0.97, 1, 1.02, 1.01, 0.99].map((n) => n * value),
    relative,
    latency: null,
    figures: [],
  });
  const relative = (speedup, low, high) => ({ speedup, low, high, verdict: "tie" });
  const score = (name, rows) => ({
    name: "score",
    title: "The rule and the tuned choice against the best durable way",
    command: "inkstone lab score",
    place: { name, file_system: name },
    x_name: null,
    unit: "commits/s",
    baseline: rows[0].name,
    rounds: 5,
    seed: 1,
    rows,
    knees: [],
    finding: { sentence: `What was found on \`${name}\`.` },
    notes: [],
  });
  const best = row("best: reuse direct o-dsync", "best", 7000, null);
  return {
    ...copy(result),
    runs: [],
    experiments: [
      score("ext4, direct loop", [
        best,
        row("rule: reuse direct o-dsync", "rule", 7000, null),
        row("tuned: reuse fdatasync", "tuned", 6900, relative(0.98, 0.95, 1.02)),
      ]),
      score("btrfs-nodatacow, direct loop", [
        best,
        row("rule: new fsync", "rule", 5000, relative(0.71, 0.6, 0.8)),
        row("tuned: new fsync", "tuned", 6000, relative(0.87, 0.8, 1.1)),
      ]),
      score("xfs", [{ name: "score", series: "", samples: [], invalid: "mkfs.xfs is not installed: it is in xfsprogs", figures: [] }]),
    ],
  };
}

// ---- how many charts of each kind a page of `result` has: worked out from the JSON, apart from how the page does it

const list = (value) => (Array.isArray(value) ? value : []);
export function expected(result) {
  const kinds = {};
  const add = (kind, yes) => {
    if (yes) kinds[kind] = (kinds[kind] || 0) + 1;
  };
  for (const run of list(result.runs)) {
    const measured = list(run.cells)
      .map((cell) => cell.outcome)
      .filter((one) => one?.kind === "measured" && list(one.rounds).length);
    add("time", measured.length > 0);
    add(
      "speedup",
      measured.some((one) => one.relative),
    );
    add(
      "distribution",
      measured.some((one) => list(one.commit?.buckets).length),
    );
    add(
      "over-time",
      measured.some((one) => list(one.over_time).some((slices) => slices.length)),
    );
    add(
      "bill",
      measured.some((one) => list(one.bill?.layers).length),
    );
  }
  add("overview", list(result.runs).length > 1 && result.runs.some((run) => run.finding?.speedup));
  add(
    "timeline",
    list(result.runs).some((run) => list(run.cells).some((cell) => list(cell.outcome?.bill?.timeline).length)),
  );
  add(
    "disks",
    list(result.disks).some((disk) => typeof disk.per_commit_ns === "number"),
  );
  add(
    "claims",
    list(result.claims).some((claim) => claim.found?.unit === "times"),
  );
  const scored = list(result.experiments).filter((experiment) => experiment.name === "score");
  add(
    "score",
    scored.some((experiment) => list(experiment.rows).some((row) => list(row.samples).length)),
  );
  for (const experiment of list(result.experiments).filter((one) => !scored.includes(one))) {
    const measured = list(experiment.rows).filter((row) => !row.invalid && list(row.samples).length);
    const curve = experiment.x_name && measured.some((row) => typeof row.x === "number");
    add("curve", curve);
    add("rates", !curve && measured.length > 0);
    const names = new Set(measured.flatMap((row) => list(row.figures).map((figure) => figure.name)));
    if (curve)
      for (const name of names)
        add(
          "beside",
          new Set(measured.filter((row) => list(row.figures).some((figure) => figure.name === name)).map((row) => row.x)).size >
            1,
        );
    add(
      "distribution",
      measured.some((row) => row.latency?.count > 0),
    );
  }
  for (const atlas of list(result.fallocate)) {
    add("atlas", list(atlas.cells).length > 0);
    add(
      "zeroing",
      list(atlas.zeroing).some((cell) => typeof cell.call_ns === "number"),
    );
  }
  add("pairs", list(result.aa?.speedups).length > 0);
  return kinds;
}
