// The page: which charts a result gives, in which order, and what is said where something is missing.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("charts");
const contents = document.getElementById("contents");
const machine = data.machine || {};
const runs = list(data.runs);

function section(id, title, ...children) {
  contents.append(el("li", {}, el("a", { href: `#${id}` }, title)));
  const node = el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, marked(title)), ...children);
  main.append(node);
  return node;
}
const grid = (...children) => el("div", { class: "figures" }, ...children);
const absent = (words) => el("p", { class: "absent" }, words);
const notes = (all) => (list(all).length ? el("ul", { class: "notes" }, list(all).map((note) => el("li", {}, text(note)))) : null);
// `.` says nothing to who reads it elsewhere.
const namedPlace = (place) => (place && place.name && place.name !== "." ? placeName(place) : null);
const placeName = (place) => text(place && place.name) || text(place && place.directory) || "a place without a name";

// ---- one cell as the charts want it

const DURABLE = {
  seen: () => "yes: each acknowledgement's flush was seen",
  consistent: () => "likely: the device's shared counters allow it",
  "not-claimed": () => "no: it makes no such claim",
  "not-covered": (what) => `NO: ${what.reason}`,
  "not-visible": (what) => `claimed; it cannot be seen here: ${what.reason}`,
};
function durableWords(what) {
  if (!what || !what.kind) return "not known";
  return (DURABLE[what.kind] || (() => what.kind))(what);
}
function cellView(cell) {
  const outcome = cell.outcome || {};
  const name = text(cell.name) || "a cell without a name";
  if (outcome.kind !== "measured") {
    const why = outcome.kind === "not-run" ? "not run: the run ended before it" : text(outcome.reason) || "not measured, and no reason given";
    return { name, missing: why };
  }
  const rounds = list(outcome.rounds);
  const each = sorted(rounds.map((round) => round.total_ns / Math.max(1, round.commits)));
  const weak = ["not-claimed", "not-covered"].includes(outcome.durable && outcome.durable.kind);
  return {
    name, rounds, weak, outcome, value: median(each), low: quantile(each, 0.25), high: quantile(each, 0.75), fastest: each[0], slowest: each[each.length - 1],
    commit: outcome.commit || {}, relative: outcome.relative, bill: outcome.bill,
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
    ...cell, name: shownName(cell), className: focus.classes.get(cell.name) || "s-plain",
    shown: time(cell.value),
    lines: cell.missing ? [cell.missing] : [`${time(cell.value)} per commit (median of ${plural(cell.rounds.length, "round")})`, `half of the rounds: ${time(cell.low)} to ${time(cell.high)}; all: ${time(cell.fastest)} to ${time(cell.slowest)}`,
      finite(cell.commit.p50_ns) ? `single commits: p50 ${time(cell.commit.p50_ns)}, p99 ${time(cell.commit.p99_ns)}, p99.9 ${time(cell.commit.p999_ns)}, slowest ${time(cell.commit.max_ns)}` : null,
      `durable: ${durableWords(cell.outcome.durable)}`],
  }));
  const [best, base] = [focus.best, focus.base];
  const title = best && base ? `A commit takes ${time(best.value)} by \`${best.name}\`, ${time(base.value)} by \`${base.name}\`` : "Time per commit";
  return figure({
    kind: "time", title, command, wide: !cells.some((cell) => cell.relative),
    how: "Time per commit, shorter is better: the median over rounds; the line holds the middle half of them. Hatched: not durable.",
    draw: (width) => rowsChart(width, rows, { unit: time }),
    head: ["way", "rounds", "commits", "per commit", "quartiles from", "to", "fastest round", "slowest round", "p50", "p99", "p99.9", "slowest commit", "durable"],
    rows: () => cells.map((cell) => (cell.missing ? [cell.name, cell.missing] : [cell.name, count(cell.rounds.length), count(sum(cell.rounds.map((round) => round.commits))), time(cell.value), time(cell.low), time(cell.high), time(cell.fastest), time(cell.slowest),
      time(cell.commit.p50_ns), time(cell.commit.p99_ns), time(cell.commit.p999_ns), time(cell.commit.max_ns), durableWords(cell.outcome.durable)])),
  });
}

function speedupFigure(run, cells, focus, command) {
  const compared = cells.filter((cell) => cell.relative);
  if (!compared.length) return null;
  const rows = cells.map((cell) => (cell.name === run.baseline ? { name: cell.name, className: "s-base", value: 1, shown: "baseline", lines: ["the baseline: 1× by definition"] } : !cell.relative ? { name: shownName(cell), className: "s-plain", missing: cell.missing || "not compared", lines: [cell.missing || "not compared"] } : {
    name: shownName(cell), weak: cell.weak, className: focus.classes.get(cell.name) || "s-plain",
    value: cell.relative.speedup, low: cell.relative.low, high: cell.relative.high,
    shown: `${times(cell.relative.speedup)} ${cell.relative.verdict === "tie" ? "tie" : cell.relative.verdict === "unknown" ? "?" : ""}`,
    lines: [interval(cell.relative), `verdict: ${text(cell.relative.verdict)}`, cell.weak ? "not durable: no rival of the durable ways" : null],
  }));
  const base = text(run.baseline) || "the baseline";
  const shown = focus.best && focus.best.relative;
  const interval95 = shown && `(95%: ${digits(shown.low)} to ${digits(shown.high)})`;
  const title = !shown ? `Speed of each way against \`${base}\`` : ["faster", "slower"].includes(shown.verdict)
    ? `\`${focus.best.name}\` is ${times(shown.speedup)} as fast as \`${base}\` ${interval95}` : `\`${focus.best.name}\` cannot be told from \`${base}\`: ${times(shown.speedup)} ${interval95}`;
  return figure({
    kind: "speedup", title, command,
    how: "Time per commit of the baseline divided by each way's, paired by round, with 95% intervals: right of the line is faster. Tie: it holds 1, or under 3%.",
    draw: (width) => rowsChart(width, rows, { dots: true, reference: 1, unit: times }),
    head: ["way", "speedup", "95% from", "to", "verdict"],
    rows: () => compared.map((cell) => [cell.name, times(cell.relative.speedup), digits(cell.relative.low), digits(cell.relative.high), text(cell.relative.verdict)]),
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
    made.push(figure({
      kind: "distribution", command, wide: !timed.length,
      title: p99 ? `99 of 100 commits take at most ${time(best.commit.p99_ns)} by \`${best.name}\`, ${time(base.commit.p99_ns)} by \`${base.name}\`` : "How the times of single commits spread",
      how: "Every commit of all rounds; both axes stretched so that the slow tail can be read. Further left is faster.",
      draw: (width) => distributionChart(width, curves.map((cell) => ({ name: cell.name, histogram: cell.commit, className: focus.classes.get(cell.name), strong: focus.classes.has(cell.name) })), "commit"),
      head: ["way", "commits", "fastest", "mean", "p50", "p90", "p99", "p99.9", "slowest"],
      rows: () => curves.map((cell) => [cell.name, count(cell.commit.count), time(cell.commit.min_ns), time(cell.commit.mean_ns), time(cell.commit.p50_ns), time(latencyAt(cell.commit, 0.9)), time(cell.commit.p99_ns), time(cell.commit.p999_ns), time(cell.commit.max_ns)]),
    }));
  }
  if (timed.length) {
    const series = () => {
      const picked = timed.filter((cell) => focus.classes.has(cell.name));
      return (picked.length ? picked : timed.slice(0, 1)).map((cell) => ({ name: cell.name, className: focus.classes.get(cell.name) || "s1", rounds: cell.overTime, numbers: cell.overTime.map((_, n) => (cell.rounds[n] ? cell.rounds[n].number : n)) }));
    };
    made.push(figure({
      kind: "over-time", title: "Commit times from round to round: drift shows as a slope, stalls as dots far above", command,
      how: "Each round in slices of equally many commits: the median of each slice as a line, its slowest commit as a dot.", wide: !curves.length,
      draw: (width) => overTimeChart(width, series()),
      head: ["way", "round", "slices", "median of medians", "lowest median", "highest median", "slowest commit"],
      rows: () => timed.flatMap((cell) => cell.overTime.map((slices, n) => {
        const medians = sorted(slices.map((slice) => slice[1]));
        return [cell.name, count((cell.rounds[n] ? cell.rounds[n].number : n) + 1), count(slices.length), time(median(medians)), time(medians[0]), time(medians[medians.length - 1]), time(Math.max(...slices.map((slice) => slice[2])))];
      })),
    }));
  } else if (focus.measured.length) {
    made.push(absent("No latency over time: the version of Inkstone that wrote this result did not record it."));
  }
  if (curves.length || timed.length) made.unshift(el("div", { class: "wide pick" }, el("span", {}, "Single commits. Show in colour:"), chips(focus, changed)));
  return made;
}

const tally = (layer, field) => (layer && layer[field]) || { requests: 0, bytes: 0 };
function billParts(bill, layer) {
  const per = Math.max(1, bill.commits || 0);
  const kinds = bill.source === "shared-counters" ? [["k-other", "", "all writes of the device", "all_writes"], ["k-otherread", "", "all reads of the device", "all_reads"]] : KINDS;
  return kinds.map(([className, , name, field]) => ({ className, name, requests: tally(layer, field).requests / per, bytes: tally(layer, field).bytes / per }));
}
function billFigure(cells, command) {
  const billed = cells.filter((cell) => cell.bill && list(cell.bill.layers).length);
  if (!billed.length) {
    if (!cells.some((cell) => finite(cell.value))) return null;
    return absent(`No bill: ${machine.trace_refused ? `the block layer could not be traced: ${machine.trace_refused}` : "this result has no counts of what reached the device"}.`);
  }
  const roles = [...new Set(billed.flatMap((cell) => cell.bill.layers.map((layer) => text(layer.role))))];
  let role = roles[0];
  const shared = billed.some((cell) => cell.bill.source === "shared-counters");
  const layerOf = (cell) => cell.bill && list(cell.bill.layers).find((layer) => text(layer.role) === role);
  const rows = () => cells.filter((cell) => finite(cell.value)).map((cell) => {
    const layer = layerOf(cell);
    if (!layer) return { name: shownName(cell), missing: "no bill" };
    const parts = billParts(cell.bill, layer);
    const per = Math.max(1, cell.bill.commits || 0);
    return {
      name: shownName(cell), parts, flushes: layer.flushes / per,
      lines: [`per commit, over ${plural(cell.bill.commits, "commit")}:`, ...parts.filter((part) => part.requests > 0).map((part) => `${digits(part.requests)} ${part.name}, ${bytes(part.bytes)}`),
        `${digits(layer.flushes / per)} flushes${layer.fua_writes ? `, ${digits(layer.fua_writes / per)} FUA writes` : ""}`,
        cell.bill.lost_events ? `${count(cell.bill.lost_events)} events were lost: the counts are too low` : null],
    };
  });
  const used = shared ? [] : KINDS.filter(([, , , field]) => billed.some((cell) => cell.bill.layers.some((layer) => tally(layer, field).requests > 0)));
  const card = figure({
    kind: "bill", wide: true, command,
    title: shared ? "What the device was asked for per commit, by its own counters (shared with every process)" : "What one commit costs at the block layer, request by kind of request",
    how: `Requests per commit as one bar, flushes beside it. ${shared ? "Exact bills need root." : "From the kernel's tracepoints, in passes of their own that are not timed."}`,
    controls: roles.length > 1 ? choice("Device", roles, 0, (n) => { role = roles[n]; card.repaint(); }) : null,
    legend: key([...used.map(([className, , name]) => [className, name]), ["k-flush", "flushes"]]),
    draw: (width) => billChart(width, rows(), shared ? "~" : ""),
    head: ["way", "device", "commits", ...(shared ? ["all writes", "bytes", "all reads", "bytes"] : used.flatMap(([, , name]) => [name, "bytes"])), "flushes", "FUA writes"],
    rows: () => billed.flatMap((cell) => cell.bill.layers.map((layer) => {
      const per = Math.max(1, cell.bill.commits || 0);
      const parts = billParts(cell.bill, layer).filter((part) => shared || used.some(([, , name]) => name === part.name));
      return [cell.name, `${text(layer.device)} (${text(layer.role)})`, count(cell.bill.commits), ...parts.flatMap((part) => [digits(part.requests), bytes(part.bytes)]), digits(layer.flushes / per), digits((layer.fua_writes || 0) / per)];
    })),
  });
  return card;
}

function runSection(run, n) {
  const cells = list(run.cells).map(cellView);
  const focus = focusOf(run, cells);
  const command = text(data.command);
  const id = `run-${n + 1}`;
  const title = runs.length > 1 ? placeName(run.place) : text(run.title) || text(run.name) || "Measured ways";
  const order = run.random_order === false ? "always in this order" : "in another random order each round";
  const facts = [runs.length > 1 ? text(run.title) : null, placeWords(run.place), finite(run.rounds) ? `${plural(run.rounds, "round")}, ways ${order}, seed ${run.seed}` : null].filter(Boolean);
  const body = el("div", {});
  const lead = run.finding && run.finding.sentence && runs.length > 1 ? el("p", { class: "finding" }, marked(run.finding.sentence)) : null;
  body.append(...[lead, notes(run.notes)].filter(Boolean));
  if (!cells.length) body.append(absent("Nothing was measured: the run has no cells."));
  if (focus.measured.length) {
    const figs = [timeFigure(cells, focus, command), speedupFigure(run, cells, focus, command), ...spreadFigures(cells, focus, command), billFigure(cells, command)];
    body.append(grid(...figs.filter(Boolean)));
    if (!figs[1] && cells.length > 1) body.append(absent("No speedups: there is no baseline that was measured, or there were too few rounds to compare."));
  } else if (cells.length) {
    body.append(absent("Nothing was measured here:"), table(["way", "why"], cells.map((cell) => [cell.name, cell.missing]), "Ways that were not measured"));
  }
  const head = el("p", { class: "facts" }, facts.join(". "));
  if (runs.length < 4) {
    section(id, title, head, body);
    return;
  }
  const shown = run.finding && run.finding.speedup;
  const summary = el("summary", {}, el("h2", { id: `${id}-title` }, title), el("span", { class: "teaser" },
    shown ? `best: ${text(run.finding.best)}, ${interval(shown)}` : focus.measured.length ? "no finding" : "nothing was measured"));
  contents.append(el("li", {}, el("a", { href: `#${id}` }, title)));
  main.append(el("section", { id, "aria-labelledby": `${id}-title` }, el("details", { class: "fold", open: n === 0 ? "" : null }, summary, head, body)));
}

// ---- what stands above and beside the runs

function overview() {
  if (runs.length < 2) return;
  const rows = runs.map((run) => {
    const finding = run.finding || {};
    const name = placeName(run.place);
    if (!finding.speedup) return { name, className: "s-plain", missing: text(finding.sentence) || "no finding: too little was measured", lines: [text(finding.sentence) || "no finding: too little was measured"] };
    return { name, className: finding.speedup.verdict === "faster" ? "s-best" : "s-plain", value: finding.speedup.speedup, low: finding.speedup.low, high: finding.speedup.high,
      shown: `${times(finding.speedup.speedup)} ${finding.speedup.verdict === "tie" ? "tie" : ""}`, lines: [`best: ${text(finding.best)}`, `against ${text(finding.naive)}: ${interval(finding.speedup)}`] };
  });
  if (!runs.some((run) => run.finding && run.finding.speedup)) {
    section("overview", "All places at a glance", absent("In none of these places could a durable way be compared with the naive one."));
    return;
  }
  section("overview", "All places at a glance", grid(figure({
    kind: "overview", wide: true, title: "What the best durable way gains over the naive one, by place", command: text(data.command),
    how: "How many times as fast the best durable way is, with its 95% interval. The line at 1: no gain.",
    draw: (width) => rowsChart(width, rows, { dots: true, reference: 1, unit: times }),
    head: ["place", "best durable way", "against", "speedup", "95% from", "to", "verdict"],
    rows: () => runs.map((run) => {
      const finding = run.finding || {};
      const relative = finding.speedup || {};
      return [placeName(run.place), text(finding.best) || "none found", text(finding.naive), times(relative.speedup), digits(relative.low), digits(relative.high), text(relative.verdict)];
    }),
  })));
}

function timelines() {
  const all = runs.flatMap((run) => list(run.cells).map(cellView).filter((cell) => cell.bill && list(cell.bill.timeline).length)
    .map((cell) => ({ name: runs.length > 1 ? `${placeName(run.place)}: ${cell.name}` : cell.name, cell, run })));
  if (!all.length) {
    if (runs.some((run) => list(run.cells).length)) {
      section("timeline", "One commit, request by request", absent(`This result has no commits request by request: ${machine.trace_refused ? `the block layer could not be traced: ${machine.trace_refused}` : "they are recorded by `inkstone lab bill --timeline` and `inkstone lab filesystems --timeline`, as root"}.`));
    }
    return;
  }
  const first = all[0].run;
  const at = (wanted) => all.findIndex((one) => one.run === first && one.cell.name === wanted);
  const focus = focusOf(first, list(first.cells).map(cellView));
  const chosen = [Math.max(0, at(focus.base && focus.base.name)), at(focus.best && focus.best.name)];
  if (chosen[1] < 0 || chosen[1] === chosen[0]) chosen[1] = all.length > 1 ? (chosen[0] + 1) % all.length : chosen[0];
  let number = 0;
  const most = Math.max(...all.map((one) => one.cell.bill.timeline.length));
  const shown = () => chosen.map((n) => {
    const timeline = all[n].cell.bill.timeline;
    return { name: all[n].name, commit: timeline[Math.min(number, timeline.length - 1)] };
  });
  const pick = (n) => (value) => { chosen[n] = value; card.repaint(); };
  const names = all.map((one) => one.name);
  const kinds = [...KINDS.map(([className, kind]) => [className, kind]), ["k-flush", "flush"]]
    .filter(([className]) => all.some((one) => one.cell.bill.timeline.some((commit) => list(commit.requests).some((request) => kindClass(request.what) === className))));
  const card = figure({
    kind: "timeline", wide: true, title: "What the device does during one commit: two ways on one axis of time", command: text(data.command),
    how: "Each bar is a request, from the device's getting it to its completion, in the lane of its device. The commit begins at 0. Traced commits are a little slower than timed ones.",
    controls: [choice("Above", names, chosen[0], pick(0)), choice("Below", names, chosen[1], pick(1)),
      most > 1 ? choice("Which commit", [...Array(most).keys()].map((n) => `recorded commit ${n + 1}`), 0, (value) => { number = value; card.repaint(); }) : null],
    legend: key(kinds),
    draw: (width) => timelineChart(width, shown()),
    head: ["request", "device", "by", "issued after", "completed after", "bytes", "sector", "flags"],
    rows: () => shown().flatMap(({ name, commit }) => [[`${name}, commit ${count(commit.number)}`, "", "", "0", `acknowledged after ${time(commit.total_ns)}`], ...list(commit.requests).map((request) =>
      [request.what, request.device, request.who, time(request.issued_ns), finite(request.completed_ns) ? time(request.completed_ns) : "not seen", bytes(request.bytes), count(request.sector), request.flags])]),
  });
  section("timeline", "One commit, request by request", grid(card));
}

function experimentRow(row) {
  const samples = sorted(list(row.samples));
  return { ...row, name: text(row.name) || "a row without a name", series: text(row.series), value: median(samples), low: quantile(samples, 0.25), high: quantile(samples, 0.75), rounds: samples.length,
    missing: row.invalid || (samples.length ? null : "not measured"), figures: list(row.figures) };
}
function figureWords(one) {
  const unit = text(one.unit);
  if (unit.startsWith("ns")) return `${time(one.value)}${unit.slice(2)}`;
  if (unit === "bytes/s") return rate(one.value, unit);
  if (unit.startsWith("bytes")) return `${bytes(one.value)}${unit.slice(5)}`;
  return `${digits(one.value)} ${unit}`;
}
function experimentSection(experiment, n) {
  const rows = list(experiment.rows).map(experimentRow);
  const unit = text(experiment.unit);
  const command = text(experiment.command) || text(data.command);
  const xShown = (value) => (text(experiment.x_name).startsWith("bytes") ? bytes(value) : count(value));
  const lines = (row) => (row.missing ? [row.missing] : [`${rate(row.value, unit)} (median of ${plural(row.rounds, "round")}; half of them: ${rate(row.low, unit)} to ${rate(row.high, unit)})`, row.relative ? `${interval(row.relative)} of the baseline, ${text(row.relative.verdict)}` : null, ...row.figures.map((one) => `${text(one.name)}: ${figureWords(one)}`)]);
  const names = [...new Set(rows.map((row) => row.series))];
  const colours = new Map(names.map((name, at) => [name, ["s-best", "s-base", ...PICKS][at % 8]]));
  const kinds = [...new Set(rows.flatMap((row) => row.figures.map((one) => `${text(one.name)}\n${text(one.unit)}`)))];
  const tabled = {
    head: ["row", experiment.x_name || "", unit, "quartiles from", "to", "against the baseline, 95%", ...kinds.map((kind) => kind.split("\n")[0])].filter((name, at) => at !== 1 || name),
    rows: () => rows.map((row) => (row.missing ? [row.name, ...(experiment.x_name ? [finite(row.x) ? xShown(row.x) : ""] : []), row.missing] : [row.name, ...(experiment.x_name ? [finite(row.x) ? xShown(row.x) : ""] : []), rate(row.value, unit), rate(row.low, unit), rate(row.high, unit), interval(row.relative),
      ...kinds.map((kind) => { const one = row.figures.find((other) => `${text(other.name)}\n${text(other.unit)}` === kind); return one ? figureWords(one) : ""; })])),
  };
  const measured = rows.filter((row) => !row.missing);
  const figs = [];
  const onCurve = experiment.x_name ? measured.filter((row) => finite(row.x)) : [];
  const knees = list(experiment.knees);
  if (onCurve.length) {
    const curve = (pick, name) => names.map((series) => ({
      name: series || name, className: colours.get(series), knee: (knees.find((knee) => knee[0] === series) || [])[1],
      points: onCurve.filter((row) => row.series === series && pick(row)).sort((a, b) => a.x - b.x).map((row) => ({ x: row.x, ...pick(row) })),
    })).filter((one) => one.points.length);
    const bent = knees.filter((knee) => finite(knee[1])).map((knee) => `\`${knee[0]}\` at ${xShown(knee[1])}`).join(", ");
    figs.push(figure({
      kind: "curve", wide: true, command, title: bent ? `${unit} by ${experiment.x_name}; the knee: ${bent}` : `${unit} by ${experiment.x_name}`,
      how: "Higher is better. Medians over rounds; the upright lines hold the middle half of them. A ring marks the knee: beyond it the curve no longer rises.",
      legend: key(names.filter((name) => onCurve.some((row) => row.series === name)).map((name) => [colours.get(name), name || "all"])),
      draw: (width) => curveChart(width, curve((row) => ({ value: row.value, low: row.low, high: row.high, shown: `${rate(row.value, unit)} (${rate(row.low, unit)} to ${rate(row.high, unit)})` }), experiment.name), { xName: experiment.x_name, xShown, yShown: (value) => rate(value, unit).replace(/ op\/s$/, ""), unit }),
      ...tabled,
    }));
    // What was counted beside the rate bends too: one small chart for each such figure that at least two points have.
    for (const kind of kinds) {
      const of = (row) => row.figures.find((one) => `${text(one.name)}\n${text(one.unit)}` === kind);
      const having = onCurve.filter((row) => of(row) && finite(of(row).value));
      if (new Set(having.map((row) => row.x)).size < 2) continue;
      const [name, figureUnit] = kind.split("\n");
      const series = () => curve((row) => { const one = of(row); return one && finite(one.value) ? { value: one.value, low: one.value, high: one.value, shown: figureWords(one) } : null; }, experiment.name).map((one) => ({ ...one, knee: null }));
      figs.push(figure({
        kind: "beside", command, title: `${name} by ${experiment.x_name}`, how: figureUnit,
        legend: key(names.filter((one) => having.some((row) => row.series === one)).map((one) => [colours.get(one), one || "all"])),
        draw: (width) => curveChart(width, series(), { xName: experiment.x_name, xShown, yShown: (value) => figureWords({ value, unit: figureUnit.startsWith("ns") ? "ns" : figureUnit === "bytes/s" ? figureUnit : "" }).trim(), unit: figureUnit }),
        head: ["row", experiment.x_name, name], rows: () => having.map((row) => [row.name, xShown(row.x), figureWords(of(row))]),
      }));
    }
  } else if (measured.length) {
    const best = measured.reduce((a, b) => (b.value > a.value ? b : a));
    // Series that are no groups say nothing: the best row and the baseline stand out instead.
    const alike = names.length < 2 || names.length === rows.length;
    figs.push(figure({
      kind: "rates", wide: true, command, title: measured.length > 1 ? `\`${best.name}\` reaches most: ${rate(best.value, unit)}` : `\`${best.name}\`: ${rate(best.value, unit)}`,
      how: "Longer is better: the median over rounds; the line holds the middle half of them.",
      legend: alike ? null : key(names.map((name) => [colours.get(name), name || "all"])),
      draw: (width) => rowsChart(width, rows.map((row) => ({ ...row, className: alike ? (row === best ? "s-best" : row.name === experiment.baseline ? "s-base" : "s-plain") : colours.get(row.series), shown: `${rate(row.value, unit)}${row.relative ? `, ${times(row.relative.speedup)}${row.relative.verdict === "tie" ? " tie" : ""}` : ""}`, lines: lines(row) })), { unit: (value) => rate(value, unit) }),
      ...tabled,
    }));
  }
  const timed = measured.filter((row) => row.latency && row.latency.count > 0 && list(row.latency.buckets).length);
  if (timed.length) {
    const focus = { measured: timed.map((row) => ({ name: row.name })), classes: new Map() };
    focus.pick = (name) => focus.classes.set(name, ["s-base", "s-best", ...PICKS].find((one) => ![...focus.classes.values()].includes(one)) || "s6");
    [timed[0], timed[timed.length - 1]].forEach((row) => focus.classes.has(row.name) || focus.pick(row.name));
    if (timed.length <= 5) timed.forEach((row) => focus.classes.has(row.name) || focus.pick(row.name));
    const card = figure({
      kind: "distribution", wide: true, command, title: "How the times of single operations spread",
      how: "Every operation of all rounds; both axes stretched so that the slow tail can be read. Further left is faster. Pick rows to compare:",
      legend: chips(focus, () => card.repaint()),
      draw: (width) => distributionChart(width, timed.map((row) => ({ name: row.name, histogram: row.latency, className: focus.classes.get(row.name), strong: focus.classes.has(row.name) })), "operation"),
      head: ["row", "operations", "fastest", "p50", "p90", "p99", "p99.9", "slowest"],
      rows: () => timed.map((row) => [row.name, count(row.latency.count), time(row.latency.min_ns), time(row.latency.p50_ns), time(latencyAt(row.latency, 0.9)), time(row.latency.p99_ns), time(row.latency.p999_ns), time(row.latency.max_ns)]),
    });
    figs.push(card);
  }
  const failed = rows.filter((row) => row.missing);
  const title = text(experiment.title) || text(experiment.name) || "Experiment";
  section(`experiment-${n + 1}`, title, el("p", { class: "facts" }, [namedPlace(experiment.place), placeWords(experiment.place), finite(experiment.rounds) ? `${plural(experiment.rounds, "round")}, seed ${experiment.seed}` : null].filter(Boolean).join(". ")),
    experiment.finding && experiment.finding.sentence && (runs.length || list(data.experiments).length > 1) ? el("p", { class: "finding" }, marked(experiment.finding.sentence)) : null, notes(experiment.notes),
    figs.length ? grid(...figs) : absent("Nothing was measured here."),
    failed.length && (onCurve.length || !figs.length) ? table(["row", "why it has no figures"], failed.map((row) => [row.name, row.missing]), "Rows without figures") : null);
}

function atlasSection(atlas, n, all) {
  const cells = list(atlas.cells);
  const command = text(data.command);
  const rows = cells.map((cell) => {
    const after = cell.after || {};
    const before = cell.before || {};
    return { name: `${text(cell.mode)}, ${cell.offset_bytes ? `${bytes(cell.offset_bytes)} + ` : ""}${bytes(cell.len_bytes)}`, done: cell.done, answer: cell.answer, facts: after,
      lines: [cell.done ? null : `refused: ${text(cell.answer)}`, `before: ${bytes(before.size_bytes)}, ${count(before.blocks)} blocks, ${list(before.extents).join(", ")}`, `after: ${bytes(after.size_bytes)}, ${count(after.blocks)} blocks, ${list(after.extents).join(", ")}`, `reads back as ${list(after.content).join(", ") || "nothing"}`] };
  });
  const figs = [];
  const start = cells.find((cell) => cell.before && list(cell.before.extents).length);
  if (rows.length) {
    figs.push(figure({
      kind: "atlas", wide: true, command, title: `What each call of fallocate leaves of a file on ${placeName(atlas.place)}`,
      how: `The file after the call, block by block; the upright line is its size.${start ? ` Before each call: ${bytes(start.before.size_bytes)}, ${list(start.before.extents).join(", ")}.` : ""}`,
      legend: key([["b-written", "written"], ["b-unwritten", "reserved, unwritten"], ["b-hole", "hole"], ["b-refused", "refused"]]),
      draw: (width) => stripsChart(width, rows),
      head: ["call", "answer", "size before", "size after", "blocks before", "blocks after", "extents after", "reads back as"],
      rows: () => cells.map((cell, at) => [rows[at].name, text(cell.answer), bytes((cell.before || {}).size_bytes), bytes((cell.after || {}).size_bytes), count((cell.before || {}).blocks), count((cell.after || {}).blocks), list((cell.after || {}).extents).join(", "), list((cell.after || {}).content).join(", ")]),
    }));
  }
  const zeroing = list(atlas.zeroing);
  const total = (cell) => cell.call_ns + (cell.sync_ns || 0);
  const quick = zeroing.filter((cell) => finite(cell.call_ns)).sort((a, b) => total(a) - total(b))[0];
  if (quick) {
    figs.push(figure({
      kind: "zeroing", wide: true, command, title: `Zeroing ${bytes(zeroing[0].len_bytes)} on ${placeName(atlas.place)}${quick.blocks_are ? `: by \`${text(quick.way)}\` in ${time(total(quick))}, and the blocks are ${text(quick.blocks_are)}` : ""}`,
      how: "The call and the sync after it. Blocks that stay unwritten still cost a conversion at their first write.",
      draw: (width) => rowsChart(width, zeroing.map((cell) => ({ name: text(cell.way), value: finite(cell.call_ns) ? total(cell) : null, className: cell.blocks_are === "written" ? "s-best" : "s-plain", missing: text(cell.answer),
        shown: `${time(total(cell))}, ${text(cell.blocks_are)}`, lines: [`call ${time(cell.call_ns)}, sync ${time(cell.sync_ns)}`, `answer: ${text(cell.answer)}`, cell.blocks_are ? `the blocks are ${cell.blocks_are}` : null] })), { unit: time }),
      head: ["way", "bytes", "call", "sync", "answer", "blocks are"],
      rows: () => zeroing.map((cell) => [text(cell.way), bytes(cell.len_bytes), time(cell.call_ns), time(cell.sync_ns), text(cell.answer), text(cell.blocks_are)]),
    }));
  }
  const title = all.length > 1 ? `fallocate, mode by mode: ${placeName(atlas.place)}` : "fallocate, mode by mode";
  section(`fallocate-${n + 1}`, title, el("p", { class: "facts" }, placeWords(atlas.place)), figs.length ? grid(...figs) : absent("No call was made here."));
}

function pairsSection(aa) {
  const speedups = sorted(list(aa.speedups));
  section("identical", "Identical ways against each other", el("p", { class: "finding" }, `${count(aa.different)} of ${plural(aa.pairs, "pair")} of \`${text(aa.cell)}\` with itself were called different; chance explains about one in twenty.`.replaceAll("`", "")),
    speedups.length ? grid(figure({
      kind: "pairs", wide: true, command: text(data.command), title: "What noise alone does to a speedup here: each dot is a pair of identical ways",
      how: `${plural(aa.rounds, "round")} in each pair. The band is 3% around 1: effects inside it count as ties.`,
      draw: (width) => pairsChart(width, speedups),
      head: ["pairs", "lowest", "median", "highest", "called different"],
      rows: () => [[count(aa.pairs), times(speedups[0]), times(median(speedups)), times(speedups[speedups.length - 1]), count(aa.different)]],
    })) : absent("No pair was finished."));
}

// ---- where it was measured

function placeWords(place) {
  if (!place) return "";
  const facts = [place.model && text(place.model).trim(), place.write_cache && `cache ${place.write_cache}`, finite(place.fua) || typeof place.fua === "boolean" ? (place.fua ? "FUA" : "no FUA") : null,
    typeof place.journal === "boolean" ? (place.journal ? "journal" : "no journal") : null, place.copy_on_write === "always" ? "copy on write" : null].filter(Boolean);
  const words = `${text(place.file_system) || "unknown file system"}${place.device ? ` on ${place.device}` : ""}${facts.length ? ` (${facts.join(", ")})` : ""}`;
  return place.host ? `${words}, over ${placeWords(place.host)}` : words;
}
const said = (value) => (value === null || value === undefined || value === "" ? "not told" : value === true ? "yes" : value === false ? "no" : String(value));
function environment() {
  const places = [];
  for (const place of [...runs, ...list(data.experiments), ...list(data.fallocate), ...(data.aa ? [data.aa] : [])].map((one) => one.place).filter(Boolean)) {
    if (!places.some((other) => JSON.stringify(other) === JSON.stringify(place))) places.push(place);
  }
  const harness = data.harness || {};
  const started = finite(data.started_unix_s) && data.started_unix_s > 0 ? `${new Date(data.started_unix_s * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC` : "not told";
  const facts = [["kernel", said(machine.kernel)], ["CPUs", `${said(machine.cpus)} x ${said(machine.cpu)}`], ["governor", said(machine.governor)], ["memory", finite(machine.memory_bytes) ? bytes(machine.memory_bytes) : "not told"], ["root", said(machine.root)],
    ["tracing", machine.trace_refused ? `refused: ${machine.trace_refused}` : "available"], ["started", started], ["took", finite(data.elapsed_ns) ? time(data.elapsed_ns) : "not told"],
    ["harness", finite(harness.commit_ns) ? `${time(harness.commit_ns)} a commit, ${time(harness.clock_ns)} a reading of the clock; in every figure, subtracted from none` : "not told"], ["Inkstone", said(data.inkstone_version)]];
  const PLACE = [["directory", "directory"], ["file system", "file_system"], ["mount options", "mount_options"], ["journal", "journal"], ["copy on write", "copy_on_write"], ["device", "device"], ["model", "model"], ["rotational", "rotational"], ["write cache", "write_cache"], ["FUA", "fua"], ["scheduler", "scheduler"], ["O_DIRECT alignment", "direct_align_bytes"], ["WRITE_ZEROES", "write_zeroes"], ["loop backing", "loop_backing"]];
  section("environment", "Where this was measured",
    table(["machine", ""], facts, "The machine", true),
    places.length ? table(["place", ...places.map(placeName)], [...PLACE.map(([name, field]) => [name, ...places.map((place) => said(place[field]))]), ["below", ...places.map((place) => (place.host ? placeWords(place.host) : "nothing"))]]
      .filter((row) => row.slice(1).some((words) => words !== "not told")), "The places", true) : absent("No place was measured."));
}

// ---- the page itself

overview();
runs.forEach(runSection);
timelines();
list(data.experiments).forEach(experimentSection);
list(data.fallocate).forEach(atlasSection);
if (data.aa) pairsSection(data.aa);
environment();
document.body.append(tip);

function paintAll() {
  for (const { paint } of figures) paint();
}
paintAll();
let drawnAt = document.documentElement.clientWidth;
window.addEventListener("resize", () => {
  // A phone's address bar comes and goes: only another width is worth drawing again.
  if (document.documentElement.clientWidth === drawnAt) return;
  drawnAt = document.documentElement.clientWidth;
  paintAll();
});
for (const fold of document.querySelectorAll("details.fold")) {
  fold.addEventListener("toggle", () => {
    if (fold.open) figures.filter(({ card }) => fold.contains(card)).forEach(({ paint }) => paint());
  });
}
// A link into a folded part unfolds it; paper has everything unfolded.
function unfold() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  const fold = target && (target.querySelector("details.fold") || target.closest("details.fold"));
  if (fold && !fold.open) { fold.open = true; target.scrollIntoView(); }
}
window.addEventListener("hashchange", unfold);
unfold();
window.addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details.fold")) fold.open = true;
  paintAll();
});
window.addEventListener("scroll", hideTip, { passive: true });
document.addEventListener("pointerdown", (event) => { if (!event.target.closest(".says")) hideTip(); });
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.replaceWith(copyButton(button.previousElementSibling.textContent));
}

const toggle = document.getElementById("theme");
toggle.hidden = false;
const dark = () => (document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
const nameToggle = () => { toggle.textContent = dark() ? "Light" : "Dark"; toggle.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`); };
toggle.addEventListener("click", () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; nameToggle(); });
nameToggle();
