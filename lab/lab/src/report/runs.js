// A run of ways: one cell as the charts want it, which curves stand out, and the figures of a run.
"use strict";

// ---- one cell as the charts want it

const DURABLE = {
  seen: () => "yes: each acknowledgement's flush was seen",
  consistent: () => "likely: the device's shared counters allow it",
  "not-claimed": () => "no: this way does not claim it",
  "not-covered": (what) => `NO: ${what.reason}`,
  "not-visible": (what) => `claimed, but not visible here: ${what.reason}`,
};
function durableWords(what) {
  if (!what || !what.kind) return "unknown";
  return (DURABLE[what.kind] || (() => what.kind))(what);
}
function cellView(cell) {
  const outcome = cell.outcome || {};
  const name = text(cell.name) || "a cell without a name";
  if (outcome.kind !== "measured") {
    const why =
      outcome.kind === "not-run"
        ? "not run: the run ended before"
        : text(outcome.reason) || "not measured, and no reason given";
    return { name, missing: why };
  }
  const rounds = list(outcome.rounds);
  const each = sorted(rounds.map((round) => round.total_ns / Math.max(1, round.commits)));
  const weak = ["not-claimed", "not-covered"].includes(outcome.durable && outcome.durable.kind);
  return {
    name,
    rounds,
    weak,
    outcome,
    value: median(each),
    low: quantile(each, 0.25),
    high: quantile(each, 0.75),
    fastest: each[0],
    slowest: each[each.length - 1],
    commit: outcome.commit || {},
    relative: outcome.relative,
    bill: outcome.bill,
    overTime: list(outcome.over_time).filter((slices) => list(slices).length),
    missing: each.length ? null : "no round was finished",
  };
}
const shownName = (cell) => (cell.weak ? `${cell.name} (not durable)` : cell.name);

// ---- which curves of a run stand out: the baseline, the best, and what the reader picks

const PICKS = ["s1", "s2", "s3", "s4", "s5", "s6"];
function focusOf(run, cells) {
  const measured = cells.filter((cell) => finite(cell.value));
  const durable = measured.filter((cell) => !cell.weak).sort((a, b) => a.value - b.value);
  const named = (name) => measured.find((cell) => cell.name === name);
  const base = named(run.baseline) || named(run.finding && run.finding.naive);
  const best = named(run.finding && run.finding.best) || durable.find((cell) => cell !== base);
  const classes = new Map();
  if (base) classes.set(base.name, "s-base");
  if (best && best !== base) classes.set(best.name, "s-best");
  const pick = (name) => classes.set(name, PICKS.find((one) => ![...classes.values()].includes(one)) || "s6");
  if (measured.length <= 4) measured.filter((cell) => !classes.has(cell.name)).forEach((cell) => pick(cell.name));
  return { base, best, classes, pick, measured };
}
function chips(focus, changed) {
  const buttons = focus.measured.map((cell) => {
    const button = el("button", { type: "button", class: "chip" });
    const paint = () => {
      const className = focus.classes.get(cell.name);
      button.setAttribute("aria-pressed", className ? "true" : "false");
      button.replaceChildren(el("span", { class: `swatch ${className || "context"}` }), shownName(cell));
    };
    button.addEventListener("click", () => {
      if (focus.classes.has(cell.name)) focus.classes.delete(cell.name);
      else focus.pick(cell.name);
      paint();
      changed();
    });
    paint();
    return button;
  });
  return el("div", { class: "chips", role: "group", "aria-label": "Ways to emphasise" }, buttons);
}

// ---- the figures of a run

function timeFigure(cells, focus, command) {
  const rows = cells.map((cell) => ({
    ...cell,
    name: shownName(cell),
    className: focus.classes.get(cell.name) || "s-plain",
    shown: time(cell.value),
    lines: cell.missing
      ? [cell.missing]
      : [
          `${time(cell.value)} per commit (median of ${plural(cell.rounds.length, "round")}; ${halfOf(time(cell.low), time(cell.high), cell.rounds.length)}; all: ${time(cell.fastest)} to ${time(cell.slowest)})`,
          finite(cell.commit.p50_ns)
            ? `single commits: p50 ${time(cell.commit.p50_ns)}, p99 ${time(cell.commit.p99_ns)}, p99.9 ${time(cell.commit.p999_ns)}, slowest ${time(cell.commit.max_ns)}`
            : null,
          `durable: ${durableWords(cell.outcome.durable)}`,
        ],
  }));
  const [best, base] = [focus.best, focus.base];
  const title =
    best && base
      ? `A commit takes ${time(best.value)} by \`${best.name}\`, ${time(base.value)} by \`${base.name}\``
      : "Time per commit";
  return figure({
    kind: "time",
    title,
    command,
    wide: !cells.some((cell) => cell.relative),
    how: "Time per commit, shorter is better: the median over rounds; the line holds the middle half of them. Hatched: not durable.",
    draw: (width) => rowsChart(width, rows, { unit: time }),
    head: [
      "way",
      "rounds",
      "commits",
      "per commit",
      "quartiles from",
      "to",
      "fastest round",
      "slowest round",
      "p50",
      "p99",
      "p99.9",
      "slowest commit",
      "durable",
    ],
    rows: () =>
      cells.map((cell) =>
        cell.missing
          ? [cell.name, cell.missing]
          : [
              cell.name,
              count(cell.rounds.length),
              count(sum(cell.rounds.map((round) => round.commits))),
              time(cell.value),
              time(cell.low),
              time(cell.high),
              time(cell.fastest),
              time(cell.slowest),
              time(cell.commit.p50_ns),
              time(cell.commit.p99_ns),
              time(cell.commit.p999_ns),
              time(cell.commit.max_ns),
              durableWords(cell.outcome.durable),
            ],
      ),
  });
}

function speedupFigure(run, cells, focus, command) {
  const compared = cells.filter((cell) => cell.relative);
  if (!compared.length) return null;
  const rows = cells.map((cell) =>
    cell.name === run.baseline
      ? { name: cell.name, className: "s-base", value: 1, shown: "baseline", lines: ["the baseline: 1× by definition"] }
      : !cell.relative
        ? {
            name: shownName(cell),
            className: "s-plain",
            missing: cell.missing || "not compared",
            lines: [cell.missing || "not compared"],
          }
        : {
            name: shownName(cell),
            weak: cell.weak,
            className: focus.classes.get(cell.name) || "s-plain",
            value: cell.relative.speedup,
            low: cell.relative.low,
            high: cell.relative.high,
            shown: `${times(cell.relative.speedup)}${mark(cell.relative)}`,
            lines: [
              interval(cell.relative),
              `verdict: ${verdictWords(cell.relative)}`,
              cell.weak ? "not durable, so not compared with the durable ways" : null,
            ],
          },
  );
  const base = text(run.baseline) || "the baseline";
  const shown = focus.best && focus.best.relative;
  const interval95 = shown && (finite(shown.low) ? `(95%: ${digits(shown.low)} to ${digits(shown.high)})` : `(${FEW_ROUNDS})`);
  const title = !shown
    ? `Speed of each way against \`${base}\``
    : ["faster", "slower"].includes(shown.verdict)
      ? `\`${focus.best.name}\` is ${times(shown.speedup)} as fast as \`${base}\` ${interval95}`
      : shown.verdict === "tie"
        ? `\`${focus.best.name}\` ties with \`${base}\`: ${times(shown.speedup)} ${interval95}`
        : `The lab cannot tell \`${focus.best.name}\` from \`${base}\`: ${times(shown.speedup)} ${interval95}`;
  return figure({
    kind: "speedup",
    title,
    command,
    how: "Time per commit of the baseline divided by each way's, paired by round, with 95% intervals: right of the line is faster. All intervals hold at once in 95 of 100 runs. Tie: the whole interval is within 10% of 1. Cannot tell: the interval is wider.",
    draw: (width) => rowsChart(width, rows, { dots: true, reference: 1, unit: times }),
    head: ["way", "speedup", "95% from", "to", "verdict"],
    rows: () =>
      compared.map((cell) => [
        cell.name,
        times(cell.relative.speedup),
        end(cell.relative.low),
        end(cell.relative.high),
        verdictWords(cell.relative),
      ]),
  });
}

function spreadFigures(cells, focus, command) {
  const curves = focus.measured.filter((cell) => list(cell.commit.buckets).length && cell.commit.count > 0);
  const timed = focus.measured.filter((cell) => cell.overTime.length);
  const made = [];
  const changed = () => made.forEach((card) => card.repaint && card.repaint());
  const [best, base] = [focus.best, focus.base];
  const p99 = best && base && finite(best.commit.p99_ns) && finite(base.commit.p99_ns);
  if (curves.length) {
    made.push(
      figure({
        kind: "distribution",
        command,
        wide: !timed.length,
        title: p99
          ? `99 of 100 commits take at most ${time(best.commit.p99_ns)} by \`${best.name}\`, ${time(base.commit.p99_ns)} by \`${base.name}\``
          : "How the times of single commits spread",
        how: "Every commit of all rounds; both axes stretched so that the slow tail can be read. Further left is faster.",
        draw: (width) =>
          distributionChart(
            width,
            curves.map((cell) => ({
              name: cell.name,
              histogram: cell.commit,
              className: focus.classes.get(cell.name),
              strong: focus.classes.has(cell.name),
            })),
            "commit",
          ),
        head: ["way", "commits", "fastest", "mean", "p50", "p90", "p99", "p99.9", "slowest"],
        rows: () =>
          curves.map((cell) => [
            cell.name,
            count(cell.commit.count),
            time(cell.commit.min_ns),
            time(cell.commit.mean_ns),
            time(cell.commit.p50_ns),
            time(latencyAt(cell.commit, 0.9)),
            time(cell.commit.p99_ns),
            time(cell.commit.p999_ns),
            time(cell.commit.max_ns),
          ]),
      }),
    );
  }
  if (timed.length) {
    const series = () => {
      const picked = timed.filter((cell) => focus.classes.has(cell.name));
      return (picked.length ? picked : timed.slice(0, 1)).map((cell) => ({
        name: cell.name,
        className: focus.classes.get(cell.name) || "s1",
        rounds: cell.overTime,
        numbers: cell.overTime.map((_, n) => (cell.rounds[n] ? cell.rounds[n].number : n)),
      }));
    };
    made.push(
      figure({
        kind: "over-time",
        title: "Commit times from round to round: drift shows as a slope, stalls as dots far above",
        command,
        how: "Each round in slices of equally many commits: the median of each slice as a line, its slowest commit as a dot.",
        wide: !curves.length,
        draw: (width) => overTimeChart(width, series()),
        head: ["way", "round", "slices", "median of medians", "lowest median", "highest median", "slowest commit"],
        rows: () =>
          timed.flatMap((cell) =>
            cell.overTime.map((slices, n) => {
              const medians = sorted(slices.map((slice) => slice[1]));
              return [
                cell.name,
                count((cell.rounds[n] ? cell.rounds[n].number : n) + 1),
                count(slices.length),
                time(median(medians)),
                time(medians[0]),
                time(medians[medians.length - 1]),
                time(Math.max(...slices.map((slice) => slice[2]))),
              ];
            }),
          ),
      }),
    );
  } else if (focus.measured.length) {
    made.push(absent("No latency over time: the version of Inkstone that wrote this result did not record it."));
  }
  if (curves.length || timed.length)
    made.unshift(el("div", { class: "wide pick" }, el("span", {}, "Single commits. Show in colour:"), chips(focus, changed)));
  return made;
}

const tally = (layer, field) => (layer && layer[field]) || { requests: 0, bytes: 0 };
function billParts(bill, layer) {
  const per = Math.max(1, bill.commits || 0);
  const kinds =
    bill.source === "shared-counters"
      ? [
          ["k-other", "", "all writes of the device", "all_writes"],
          ["k-otherread", "", "all reads of the device", "all_reads"],
        ]
      : KINDS;
  return kinds.map(([className, , name, field]) => ({
    className,
    name,
    requests: tally(layer, field).requests / per,
    bytes: tally(layer, field).bytes / per,
  }));
}
// What other processes did on the same device meanwhile: none of it is in the bars.
function othersWords(layer, per) {
  const [writes, flushes] = [tally(layer, "foreign_writes").requests, layer.foreign_flushes || 0];
  return writes + flushes > 0 ? `besides, for other processes: ${digits(writes / per)} writes, ${digits(flushes / per)} flushes` : null;
}
function billFigure(cells, command) {
  const billed = cells.filter((cell) => cell.bill && list(cell.bill.layers).length);
  if (!billed.length) {
    if (!cells.some((cell) => finite(cell.value))) return null;
    return absent(
      `No bill: ${machine.trace_refused ? `the block layer could not be traced: ${machine.trace_refused}` : "this result has no counts of what reached the device"}.`,
    );
  }
  const roles = [...new Set(billed.flatMap((cell) => cell.bill.layers.map((layer) => text(layer.role))))];
  let role = roles[0];
  const shared = billed.some((cell) => cell.bill.source === "shared-counters");
  const layerOf = (cell) => cell.bill && list(cell.bill.layers).find((layer) => text(layer.role) === role);
  const rows = () =>
    cells
      .filter((cell) => finite(cell.value))
      .map((cell) => {
        const layer = layerOf(cell);
        if (!layer) return { name: shownName(cell), missing: "no bill" };
        const parts = billParts(cell.bill, layer);
        const per = Math.max(1, cell.bill.commits || 0);
        return {
          name: shownName(cell),
          parts,
          flushes: layer.flushes / per,
          lines: [
            `per commit, over ${plural(cell.bill.commits, "commit")}:`,
            ...parts
              .filter((part) => part.requests > 0)
              .map((part) => `${digits(part.requests)} ${part.name}, ${bytes(part.bytes)}`),
            `${digits(layer.flushes / per)} flushes${layer.fua_writes ? `, ${digits(layer.fua_writes / per)} FUA writes` : ""}`,
            othersWords(layer, per),
            cell.bill.lost_events ? `${count(cell.bill.lost_events)} events were lost: the counts are too low` : null,
          ],
        };
      });
  const used = shared
    ? []
    : KINDS.filter(([, , , field]) => billed.some((cell) => cell.bill.layers.some((layer) => tally(layer, field).requests > 0)));
  const card = figure({
    kind: "bill",
    wide: true,
    command,
    title: shared
      ? "Requests to the device per commit, by its own counters (which include other processes)"
      : "What one commit costs at the block layer, request by kind of request",
    how: `Requests per commit as one bar, flushes beside it. ${shared ? "Exact bills need root." : "From the kernel's tracepoints, in passes of their own that are not timed."}`,
    controls:
      roles.length > 1
        ? choice("Device", roles, 0, (n) => {
            role = roles[n];
            card.repaint();
          })
        : null,
    legend: key([...used.map(([className, , name]) => [className, name]), ["k-flush", "flushes"]]),
    draw: (width) => billChart(width, rows(), shared ? "~" : ""),
    head: [
      "way",
      "device",
      "commits",
      ...(shared ? ["all writes", "bytes", "all reads", "bytes"] : used.flatMap(([, , name]) => [name, "bytes"])),
      "flushes",
      "FUA writes",
    ],
    rows: () =>
      billed.flatMap((cell) =>
        cell.bill.layers.map((layer) => {
          const per = Math.max(1, cell.bill.commits || 0);
          const parts = billParts(cell.bill, layer).filter((part) => shared || used.some(([, , name]) => name === part.name));
          return [
            cell.name,
            `${text(layer.device)} (${text(layer.role)})`,
            count(cell.bill.commits),
            ...parts.flatMap((part) => [digits(part.requests), bytes(part.bytes)]),
            digits(layer.flushes / per),
            digits((layer.fua_writes || 0) / per),
          ];
        }),
      ),
  });
  return card;
}

function runSection(run, n) {
  const cells = list(run.cells).map(cellView);
  const focus = focusOf(run, cells);
  const command = text(data.command);
  const id = `run-${n + 1}`;
  const place = runs.length > 1 ? placeName(run.place) : text(run.title) || text(run.name) || "Measured ways";
  // Runs after none, fill and trim differ in nothing else.
  const state = run.precondition && text(run.precondition.kind);
  const title = state ? `${place}, precondition ${state}` : place;
  const order = run.random_order === false ? "always in this order" : "in another random order each round";
  const facts = [
    runs.length > 1 ? text(run.title) : null,
    placeWords(run.place),
    finite(run.rounds) ? `${plural(run.rounds, "round")}, ways ${order}, seed ${run.seed}` : null,
  ].filter(Boolean);
  const body = el("div", {});
  const lead =
    run.finding && run.finding.sentence && runs.length > 1 ? el("p", { class: "finding" }, marked(run.finding.sentence)) : null;
  body.append(...[lead, notes(run.notes)].filter(Boolean));
  if (!cells.length) body.append(absent("Nothing was measured: the run has no cells."));
  if (focus.measured.length) {
    const figs = [
      timeFigure(cells, focus, command),
      speedupFigure(run, cells, focus, command),
      ...spreadFigures(cells, focus, command),
      billFigure(cells, command),
    ];
    body.append(grid(...figs.filter(Boolean)));
    if (!figs[1] && cells.length > 1)
      body.append(absent("No speedups: there is no baseline that was measured, or there were too few rounds to compare."));
  } else if (cells.length) {
    body.append(
      absent("Nothing was measured here:"),
      table(
        ["way", "why"],
        cells.map((cell) => [cell.name, cell.missing]),
        "Ways that were not measured",
      ),
    );
  }
  const head = el("p", { class: "facts" }, facts.join(". "));
  if (runs.length < 4) {
    section(id, title, head, body);
    return;
  }
  const shown = run.finding && run.finding.speedup;
  const summary = el(
    "summary",
    {},
    el("h2", { id: `${id}-title` }, title),
    el(
      "span",
      { class: "teaser" },
      shown
        ? `best: ${text(run.finding.best)}, ${interval(shown)}`
        : focus.measured.length
          ? "no finding"
          : "nothing was measured",
    ),
  );
  contents.append(el("li", {}, el("a", { href: `#${id}` }, title)));
  main.append(
    el(
      "section",
      { id, "aria-labelledby": `${id}-title` },
      el("details", { class: "fold", open: n === 0 ? "" : null }, summary, head, body),
    ),
  );
}
