// The page of a result: its charts. Owns: what is between the head and the tables, which are in the
// HTML already. May not touch: figures; it shows what the JSON has, and says what is missing. Text
// of the result goes through textContent or setAttribute, never through HTML. There are two kinds
// of chart: rows.
"use strict";

// ---- elements, and values that may be missing

function build(node, given, children) {
  for (const [name, value] of Object.entries(given || {}))
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  node.append(...children.flat(2).filter((child) => child || child === 0));
  return node;
}
const el = (tag, given, ...children) => build(document.createElement(tag), given, children);
const sv = (tag, given, ...children) =>
  build(document.createElementNS("http://www.w3.org/2000/svg", tag), given, children);
// Sentences name ways in `backticks`.
const marked = (words) =>
  text(words)
    .split("`")
    .map((part, n) => (n % 2 ? el("code", {}, part) : part));

const list = (value) => (Array.isArray(value) ? value : []);
const text = (value) => (value === null || value === undefined ? "" : String(value));
const finite = (value) => typeof value === "number" && Number.isFinite(value);
const sum = (values) => values.reduce((total, value) => total + (finite(value) ? value : 0), 0);
const sorted = (values) => values.filter(finite).sort((a, b) => a - b);
// Between neighbours in proportion, as the lab's own tables have it.
function quantile(values, share) {
  const all = sorted(values);
  if (!all.length) return null;
  const at = (all.length - 1) * share;
  const below = Math.floor(at);
  return all[below] + (all[Math.min(below + 1, all.length - 1)] - all[below]) * (at - below);
}

// ---- numbers as people read them

function digits(value) {
  if (!finite(value)) return "not measured";
  const size = Math.abs(value);
  if (size >= 99.95) return Math.round(value).toLocaleString("en-US");
  if (size >= 9.995) return value.toFixed(1);
  // Far below 1 the digits that count are further right.
  return size > 0 && size < 0.0995 ? String(Number(value.toPrecision(2))) : value.toFixed(2);
}
function scaled(value, units) {
  if (!finite(value)) return "not measured";
  // Half a step early, so that nothing is shown as "1,000" of the smaller unit.
  const fitting = units.filter(([factor]) => Math.abs(value) >= factor * 0.9995);
  const [factor, unit] = fitting.length ? fitting[fitting.length - 1] : units[0];
  return `${digits(value / factor)} ${unit}`;
}
const TIMES = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];
const SIZES = [[1, "B"], [1024, "KiB"], [1024 ** 2, "MiB"], [1024 ** 3, "GiB"], [1024 ** 4, "TiB"]];
const SPEEDS = [[1, "B/s"], [1e3, "kB/s"], [1e6, "MB/s"], [1e9, "GB/s"]];
// "1 ms", not "1.00 ms".
const brief = (shown) => shown.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
const time = (ns) => (ns === 0 ? "0" : scaled(ns, TIMES));
const bytes = (value) => brief(scaled(value, SIZES));
const count = (value) => (finite(value) ? value.toLocaleString("en-US") : "not measured");
const plural = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;
const times = (value) => (finite(value) ? `${digits(value)}×` : "not measured");
// What a figure is, without a unit of time: the figures have their own.
const inWords = (unit) => unit.replace(/^ns(, | )?/, "time ").trim();
function amount(value, unit) {
  if (unit.startsWith("ns")) return `${time(value)}${unit.slice(2).replace(/^,.*/, "")}`;
  if (unit === "bytes/s") return scaled(value, SPEEDS);
  if (unit.startsWith("bytes")) return `${bytes(value)}${unit.slice(5)}`;
  const short = [[1, ""], [1e4, "k"], [1e6, "M"]].filter(([least]) => value >= least).pop();
  const shown = { k: `${digits(value / 1e3)} k`, M: `${digits(value / 1e6)} M` }[short && short[1]];
  return `${shown || digits(value)} ${unit}`;
}
// A speedup with its interval, and the word that follows it; faster and slower are in the figure.
const MARKS = { tie: " tie", "cannot-tell": " ?", unknown: " ?" };
const against = (relative) => times(relative.speedup) + (MARKS[relative.verdict] || "");
const ends = (relative) =>
  finite(relative.low) && finite(relative.high)
    ? `95%: ${digits(relative.low)} to ${digits(relative.high)}`
    : "too few rounds for an interval";
const interval = (relative) => (relative ? `${times(relative.speedup)} (${ends(relative)})` : "");
const wordsOf = (verdict) => text(verdict).replace("-", " ");
// ---- scales: a value's place in pixels, and the ticks to draw

function linear(top, show) {
  return (from, to) => {
    const high = top > 0 ? top : 1;
    // Numbers stand beside each other on the horizontal axis, below each other on the other one.
    const parts = Math.max(2, Math.min(6, to > from ? (to - from) / 90 : (from - to) / 45));
    const power = 10 ** Math.floor(Math.log10(high / parts));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= high / parts);
    const values = [...Array(Math.floor(high / step + 0.001) + 1).keys()].map((n) => n * step);
    const at = (value) => from + (value / high) * (to - from);
    return { at, ticks: values.map((value) => [value, brief(show(value))]) };
  };
}
function logarithmic(low, high, base, show) {
  return (from, to) => {
    const log = (value) => Math.log(Math.max(value, 1e-12));
    const pad = Math.max((log(high) - log(low)) * 0.04, Math.log(1.05));
    const [a, b] = [log(low) - pad, log(high) + pad];
    const at = (value) => from + ((log(value) - a) / (b - a)) * (to - from);
    const step = Math.log(base);
    const every = Math.max(1, Math.ceil((b - a) / step / Math.max(2, Math.abs(to - from) / 64)));
    const powers = [];
    for (let n = Math.ceil(a / step); n * step <= b; n += 1)
      if (n % every === 0) powers.push(base ** n);
    // Less than two powers: the ends of the data, as far as they stand apart.
    const apart = Math.abs(at(high) - at(low)) > 80;
    const values = powers.length > 1 ? powers : apart ? [low, high] : [low];
    return { at, ticks: values.map((value) => [value, brief(show(value))]) };
  };
}

// ---- charts

const CHARACTER = 6.9; // of the labels' font, in pixels, about
const canvas = (width, height) => sv("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
const line = (x1, y1, x2, y2, name) => sv("line", { x1, y1, x2, y2, class: name });
const box = (from, to, y, height, name) =>
  sv("rect", { x: from, y, width: Math.max(1, to - from), height, class: name });
const label = (x, y, words, name, anchor) =>
  sv("text", { x, y, class: name, "text-anchor": anchor || "start" }, words);
function shortened(words, pixels) {
  const room = Math.max(4, Math.floor(pixels / CHARACTER));
  return words.length <= room ? words : `${words.slice(0, room - 1)}…`;
}
// The ticks of a horizontal axis, also at its edges inside the chart; a number that would lie on the
// one before is left out.
const across = (scale, top, bottom, width) => {
  let free = -Infinity;
  return scale.ticks.flatMap(([value, words]) => {
    const half = words.length * 3.4 + 1;
    const middle = Math.max(half, Math.min(width - half, scale.at(value)));
    const grid = line(scale.at(value), top, scale.at(value), bottom, "grid");
    if (middle - half < free) return [grid];
    free = middle + half + 8;
    return [grid, label(middle, bottom + 16, words, "tick", "middle")];
  });
};

// A mark says its values under the pointer; the tables below the charts say them without one.
function says(node, lines) {
  node.append(sv("title", {}, lines.filter(Boolean).join("\n")));
  return node;
}

// rows: { name, lines, shown, className, weak, missing }, and what stands in the row: a value with
// low and high as a bar or a dot, or parts [{ from, to, className }].
// options: { scale, dots, reference }
function rowsChart(width, rows, { scale, dots, reference }) {
  const narrow = width < 540;
  // Capitals are wider.
  const longest = Math.max(4, ...rows.map((row) => row.name.length)) * (CHARACTER + 1.5) + 14;
  const left = narrow ? 2 : Math.min(longest, width * 0.42);
  const step = narrow ? 42 : 27;
  // Figures stand where a bar ends, and in a column of their own beside dots and parts.
  const room = Math.max(3, ...rows.map((row) => text(row.shown).length)) * CHARACTER + 12;
  const right = width - Math.min(room, width * 0.45);
  const x = scale(left + (dots ? 6 : 0), right);
  const bottom = rows.length * step + 4;
  const chart = canvas(width, bottom + 28);
  chart.append(...across(x, 0, bottom, width));
  rows.forEach((row, n) => {
    const y = n * step;
    const middle = narrow ? y + 29 : y + step / 2;
    const [at, low, high] = [row.value, row.low, row.high].map((value) => x.at(value));
    const measured = finite(row.value) || row.parts;
    const end = dots || row.parts ? right + 4 : Math.max(at, finite(row.high) ? high : 0) + 6;
    const spread = finite(row.low) && finite(row.high);
    const group = sv(
      "g",
      { class: row.weak ? "says weak" : "says" },
      box(0, width, y, step, "hit"),
      // No line through a name above its row, nor through words in place of a figure.
      finite(reference) &&
        measured &&
        line(x.at(reference), narrow ? y + 20 : y, x.at(reference), y + step, "reference"),
      finite(row.value) && !dots && box(x.at(0), at, middle - 7, 14, `mark bar ${row.className}`),
      finite(row.value) && spread && line(low, middle, high, middle, `whisker ${row.className}`),
      finite(row.value) &&
        dots &&
        sv("circle", { cx: at, cy: middle, r: 4.5, class: `mark bar ${row.className}` }),
      list(row.parts).map((part) =>
        box(x.at(part.from), x.at(part.to), middle - 7, 14, `mark bar ${part.className}`),
      ),
      label(
        narrow ? 2 : left - 10,
        narrow ? y + 14 : middle + 4,
        shortened(row.name, narrow ? width - 4 : left - 14),
        "name",
        narrow ? "start" : "end",
      ),
      measured
        ? label(end, middle + 4, shortened(text(row.shown), width - end), "value")
        : label(
            left + 4,
            middle + 4,
            shortened(row.missing || "not measured", width - left - 4),
            "missing",
          ),
    );
    chart.append(says(group, [row.name, ...list(row.lines)]));
  });
  if (!chart.querySelector(".mark")) chart.append(sv("g", { class: "mark" }));
  return chart;
}

// ---- pieces of the page

const data = JSON.parse(document.getElementById("data").textContent);
const tables = list(data.tables);
const isWriting = (shown) => text(shown.unit) === "ns per commit";
const runs = tables.filter(isWriting);
const machine = data.machine || {};
const untraced =
  machine.trace_refused && `the block layer could not be traced: ${machine.trace_refused}`;

const key = (entries) =>
  el(
    "ul",
    { class: "key" },
    entries.map(([name, words]) => el("li", {}, el("span", { class: `swatch ${name}` }), words)),
  );

// Every figure of the page, so that a new width draws all of them again.
const figures = [];
// `draw(width)` gives a chart.
function figure({ kind, title, how, legend, draw }) {
  const plot = el("div", { class: "plot" });
  const card = el(
    "figure",
    { id: `figure-${figures.length + 1}`, "data-chart": kind },
    el("figcaption", {}, el("h3", {}, marked(title)), how && el("p", { class: "how" }, how)),
    legend,
    plot,
  );
  const name = text(title).replaceAll("`", "");
  card.paint = () => {
    const style = getComputedStyle(card);
    const inner = card.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const chart = draw(Math.max(260, Math.round(inner)));
    plot.replaceChildren(build(chart, { role: "img", "aria-label": name }, []));
  };
  figures.push(card);
  return card;
}
const absent = (words) => el("p", { class: "absent" }, words);
function section(id, title, ...children) {
  const link = el("a", { href: `#${id}` }, title);
  document.getElementById("contents").append(el("li", {}, link));
  const heading = el("h2", { id: `${id}-title` }, marked(title));
  const node = el("section", { id, "aria-labelledby": `${id}-title` }, heading, ...children);
  document.getElementById("charts").append(node);
}
// What stands at the head of the page is not said twice.
const sentenceOf = (part) =>
  tables.length > 1 &&
  part.finding &&
  el("p", { class: "finding" }, marked(part.finding.sentence));

const placeName = (place) =>
  text(place && place.name) || text(place && place.directory) || "a place without a name";
// ---- several disks, several places: what is best where

function disksSection() {
  const disks = list(data.disks);
  if (!disks.length) return;
  const best = disks.find((disk) => finite(disk.per_commit_ns) && !disk.refused);
  const compared = (disk) =>
    disk === best
      ? "the best"
      : disk.relative
        ? `${against(disk.relative)}, ${ends(disk.relative)}`
        : "";
  const rows = disks.map((disk) => ({
    name: text(disk.directory),
    value: disk.per_commit_ns,
    className: disk === best ? "s-best" : "s-plain",
    weak: Boolean(disk.refused),
    missing: text(disk.refused),
    shown: `${time(disk.per_commit_ns)}${disk.refused ? ", not usable for a log" : ""}`,
    lines: [
      finite(disk.per_commit_ns) && `${time(disk.per_commit_ns)} per durable commit`,
      disk.best && `its best durable way: ${disk.best}`,
      disk.relative && `speed against the best disk: ${compared(disk)}`,
      disk.refused && `not usable for a log: ${disk.refused}`,
    ],
  }));
  const slowest = Math.max(0, ...disks.map((disk) => disk.per_commit_ns || 0));
  section(
    "disks",
    "Which disk is best for the log",
    slowest
      ? figure({
          kind: "disks",
          title: best
            ? `\`${best.directory}\` makes a commit durable in ${time(best.per_commit_ns)}`
            : "None of these can carry a log",
          how:
            "The median time of a durable commit by each disk's fastest durable way; shorter is " +
            "better. Hatched: nothing is durable there.",
          draw: (width) => rowsChart(width, rows, { scale: linear(slowest, time) }),
        })
      : absent("No disk could be measured."),
  );
}

// Rows of a speedup each, with its interval: dots around 1.
function speedups(rows) {
  const of = (row) => [row.value, row.low, row.high];
  const all = sorted([1, ...rows.flatMap(of)]).filter((value) => value > 0);
  const scale = logarithmic(all[0], all[all.length - 1], 2, times);
  return (width) => rowsChart(width, rows, { scale, dots: true, reference: 1 });
}
function speedupRow(name, relative, more) {
  const { speedup: value, low, high } = relative;
  const lines = [interval(relative), `verdict: ${wordsOf(relative.verdict)}`];
  return { name, value, low, high, shown: against(relative), className: "s-plain", lines, ...more };
}
// ---- a table: ways side by side

const DURABLE = {
  seen: "yes: each acknowledgement's flush was seen",
  "not-claimed": "no: this way does not claim it",
  "not-covered": "NO",
  "not-visible": "claimed, but not visible here",
};
function durableWords(what) {
  const { kind, reason } = what || {};
  return what ? [DURABLE[kind] || text(kind) || "unknown", reason].filter(Boolean).join(": ") : "";
}
const PICKS = ["s1", "s2", "s3", "s4", "s5", "s6"];
const figureWords = ({ value, unit }) => amount(value, text(unit));

// A table with its ways as the charts need them. Which ways stand out: the baseline, the best, and
// all if they are few.
function viewOf(shown) {
  const unit = text(shown.unit);
  const isTime = unit.startsWith("ns");
  const ways = list(shown.ways).map((way) => {
    const rounds = list(way.rounds);
    const each = rounds.map(({ total_ns, commits }) =>
      isTime ? total_ns / Math.max(1, commits) : (commits * 1e9) / Math.max(1, total_ns));
    const weak = ["not-claimed", "not-covered"].includes((way.durable || {}).kind);
    return {
      ...way,
      key: text(way.name),
      name: weak ? `${text(way.name)} (not durable)` : text(way.name),
      weak,
      rounds,
      figures: list(way.figures),
      value: quantile(each, 0.5),
      low: quantile(each, 0.25),
      high: quantile(each, 0.75),
      missing: way.missing || (each.length ? null : "no round was finished"),
    };
  });
  const measured = ways.filter((way) => !way.missing && finite(way.value));
  const named = (name) => measured.find((way) => way.key === name);
  const { best: known } = shown.finding || {};
  const base = named(shown.baseline);
  const better = (a, b) => (isTime ? a.value - b.value : b.value - a.value);
  const candidates = measured.filter((way) => !way.weak && (way !== base || !shown.baseline));
  const best = named(known) || candidates.sort(better)[0];
  const classes = new Map();
  if (base) classes.set(base, "s-base");
  if (best && best !== base) classes.set(best, "s-best");
  const others = measured.filter((way) => !classes.has(way));
  if (measured.length <= 8) others.forEach((way, n) => classes.set(way, PICKS[n]));
  const show = (value) => amount(value, unit);
  // On an axis, whose name has the unit.
  const tick = (value) => (isTime ? time(value) : show(value).replace(` ${unit}`, ""));
  return { shown, unit, isTime, ways, measured, base, best, classes, show, tick };
}

function linesOf(way, show) {
  if (way.missing) return [way.missing];
  return [
    `${show(way.value)} (median of ${plural(way.rounds.length, "round")}; ` +
      (way.rounds.length > 1
        ? `half of them: ${show(way.low)} to ${show(way.high)})`
        : "a single one)"),
    way.latency &&
      `single ones: p50 ${time(way.latency.p50_ns)}, p99 ${time(way.latency.p99_ns)}, ` +
        `slowest ${time(way.latency.max_ns)}`,
    way.relative && `${interval(way.relative)} of the baseline, ${wordsOf(way.relative.verdict)}`,
    ...way.figures.map((one) => `${text(one.name)}: ${figureWords(one)}`),
    way.durable && `durable: ${durableWords(way.durable)}`,
  ];
}

function valuesFigure(view) {
  const { ways, measured, base, best, classes, show, tick, unit, isTime } = view;
  const drawn = ways.map((way) => ({
    ...way,
    className: classes.get(way) || "s-plain",
    shown: show(way.value),
    lines: linesOf(way, show),
  }));
  const title = best && base && best !== base
    ? `\`${best.key}\`: ${show(best.value)}; \`${base.key}\`: ${show(base.value)}`
    : best ? `\`${best.key}\`: ${show(best.value)}` : inWords(unit);
  const top = Math.max(...measured.map((way) => way.high));
  return figure({
    kind: isTime ? "time" : "rates",
    title,
    how:
      `${inWords(unit)}: ${isTime ? "shorter" : "longer"} is better. The median over rounds; the ` +
      "line " +
      "holds the middle half of them. Hatched: not durable.",
    draw: (width) => rowsChart(width, drawn, { scale: linear(top, tick) }),
  });
}

function speedupFigure({ shown, ways, best, classes }) {
  if (!ways.some((way) => way.relative)) return null;
  const base = text(shown.baseline) || "the baseline";
  const rows = ways.map((way) => {
    const more = { className: classes.get(way) || "s-plain", weak: way.weak };
    if (way.key && way.key === shown.baseline)
      return { ...more, name: way.name, value: 1, shown: "baseline", lines: ["1× by definition"] };
    if (way.relative) return speedupRow(way.name, way.relative, more);
    const missing = way.missing || "not compared";
    return { name: way.name, missing, lines: [missing] };
  });
  const found = best && best.relative;
  const speed = found && `is ${times(found.speedup)} as fast as`;
  const than = { faster: speed, slower: speed, tie: "ties with" }[found && found.verdict];
  return figure({
    kind: "speedup",
    title: !found
      ? `Speed of each way against \`${base}\``
      : than
        ? `\`${best.key}\` ${than} \`${base}\` (${ends(found)})`
        : `The lab cannot tell \`${best.key}\` from \`${base}\` (${ends(found)})`,
    how:
      "Each way against the baseline, paired by round, with 95% intervals: right of the line is " +
      "faster. All intervals hold at once in 95 of 100 runs. Tie: the whole interval is within " +
      "10% of 1. A question mark: the interval is wider.",
    draw: speedups(rows),
  });
}

// ---- the bill of a commit: what reached the device

const KINDS = [
  ["k-data", "data-write"],
  ["k-journal", "journal-write"],
  ["k-otherjournal", "other-journal-write"],
  ["k-metadata", "metadata-write"],
  ["k-discard", "discard"],
  ["k-other", "unattributed-write"],
  ["k-read", "data-read"],
  ["k-otherread", "other-read"],
  ["k-flush", "flush"],
];
const kindWords = (kind) => text(kind).replaceAll("-", " ");
const requestsOf = (bill, kind) => (bill.requests || {})[kind] || { requests: 0, bytes: 0 };
function billFigure(cells) {
  const views = cells.map((cell) => {
    const { bill } = cell;
    if (!bill) return { name: cell.name, missing: cell.missing || "no bill", lines: ["no bill"] };
    const each = (n) => n / Math.max(1, bill.commits || 0);
    let end = 0;
    const parts = KINDS.map(([className, kind]) => {
      const { requests, bytes: moved } = requestsOf(bill, kind);
      const from = end;
      end += each(requests);
      return { className, kind, from, to: end, requests: each(requests), bytes: each(moved) };
    });
    const others = sum(
      ["foreign-write", "foreign-flush"].map((kind) => requestsOf(bill, kind).requests),
    );
    const used = parts.filter((part) => part.requests > 0);
    const said = (part) =>
      `${digits(part.requests)} × ${kindWords(part.kind)}` +
      (part.bytes ? `, ${bytes(part.bytes)}` : "");
    return {
      name: cell.name,
      parts: used,
      end,
      shown: digits(end),
      commits: bill.commits,
      fua: each(bill.fua_writes || 0),
      lines: [
        `per commit, over ${plural(bill.commits, "commit")}:`,
        ...used.map(said),
        bill.fua_writes > 0 && `${digits(each(bill.fua_writes))} of the writes with FUA`,
        others > 0 && `besides, for other processes: ${digits(each(others))} requests`,
        bill.lost_events > 0 &&
          `${count(bill.lost_events)} events were lost: the counts are too low`,
      ],
    };
  });
  const used = KINDS.filter(([, kind]) =>
    views.some(({ parts }) => list(parts).some((p) => p.kind === kind)),
  );
  const partOf = (view, kind) => list(view.parts).find((part) => part.kind === kind);
  const top = Math.max(...views.map((view) => view.end || 0));
  return figure({
    kind: "bill",
    title: "What one commit costs the device: requests by kind",
    how:
      "Requests per commit as one bar, from the kernel's tracepoints, in passes of their own that " +
      "are not timed.",
    legend: key(used.map(([className, kind]) => [className, kindWords(kind)])),
    draw: (width) => rowsChart(width, views, { scale: linear(top, digits) }),
  });
}
function billOf(cells) {
  const why = untraced || "this result has no counts of what reached the device";
  return cells.some((cell) => cell.bill) ? billFigure(cells) : absent(`No bill: ${why}.`);
}

function tableSection(shown, n) {
  const view = viewOf(shown);
  const { ways, measured } = view;
  const named = text(shown.title) || text(shown.name) || "Measured ways";
  const place = placeName(shown.place);
  section(
    `table-${n + 1}`,
    place !== "." && tables.length > 1 ? `${place}: ${named}` : named,
    sentenceOf(shown),
    measured.length
      ? [
          valuesFigure(view),
          speedupFigure(view),
          isWriting(shown) && billOf(ways),
        ]
      : absent("Nothing was measured here."),
  );
}

// ---- when it was measured

const started = finite(data.started_unix_s) && data.started_unix_s > 0
  ? `${new Date(data.started_unix_s * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`
  : "measured at an unknown time";
// ---- the page itself

document.getElementById("when").textContent = started;
disksSection();
// Facts without rounds are in the text below.
tables.filter((one) => !list(one.ways).some((way) => list(way.facts).length && !list(way.rounds).length))
  .forEach(tableSection);

const paintAll = () => figures.forEach((card) => card.paint());
paintAll();
let drawnAt = document.documentElement.clientWidth;
window.addEventListener("resize", () => {
  // A phone's address bar comes and goes: only another width is worth drawing again.
  if (document.documentElement.clientWidth === drawnAt) return;
  drawnAt = document.documentElement.clientWidth;
  paintAll();
});
