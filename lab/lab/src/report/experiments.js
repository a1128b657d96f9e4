// Everything that is not a run of ways: experiments, the fallocate atlas, identical ways.
"use strict";

function experimentRow(row) {
  const samples = sorted(list(row.samples));
  return {
    ...row,
    name: text(row.name) || "a row without a name",
    series: text(row.series),
    value: median(samples),
    low: quantile(samples, 0.25),
    high: quantile(samples, 0.75),
    rounds: samples.length,
    missing: row.invalid || (samples.length ? null : "not measured"),
    figures: list(row.figures),
  };
}
function figureWords(one) {
  const unit = text(one.unit);
  if (unit.startsWith("ns")) return `${time(one.value)}${unit.slice(2)}`;
  if (unit === "bytes/s") return rate(one.value, unit);
  if (unit.startsWith("bytes")) return `${bytes(one.value)}${unit.slice(5)}`;
  if (unit === "lines") return plural(one.value, "line");
  return `${digits(one.value)} ${unit}`;
}
// What all charts of one experiment need.
function experimentView(experiment) {
  const rows = list(experiment.rows).map(experimentRow);
  const measured = rows.filter((row) => !row.missing);
  const names = [...new Set(rows.map((row) => row.series))];
  const kinds = new Map(rows.flatMap((row) => row.figures.map((one) => [kindOf(one), one])));
  return {
    experiment,
    rows,
    measured,
    names,
    kinds,
    unit: text(experiment.unit),
    // A time, and which one: `ns, p99.9 of a write`.
    less: text(experiment.unit).startsWith("ns"),
    unitName: text(experiment.unit).replace(/^ns, /, ""),
    xName: experiment.x_name,
    command: text(experiment.command) || text(data.command),
    colours: new Map(names.map((name, at) => [name, ["s-best", "s-base", ...PICKS][at % 8]])),
    knees: list(experiment.knees).filter((knee) => finite(knee[1])),
    onCurve: experiment.x_name ? measured.filter((row) => finite(row.x)) : [],
    xShown: (value) => (text(experiment.x_name).startsWith("bytes") ? bytes(value) : count(value)),
  };
}
const kindOf = (one) => `${text(one.name)}, ${text(one.unit)}`;
const figureOf = (row, kind) => row.figures.find((one) => kindOf(one) === kind && finite(one.value));

function experimentTable({ rows, kinds, unit, unitName, xName, xShown }) {
  const place = (row) => (xName ? [finite(row.x) ? xShown(row.x) : ""] : []);
  return {
    head: [
      "row",
      ...(xName ? [xName] : []),
      unitName,
      "quartiles from",
      "to",
      "against the baseline, 95%",
      ...[...kinds.values()].map((one) => text(one.name)),
    ],
    rows: () =>
      rows.map((row) =>
        row.missing
          ? [row.name, ...place(row), row.missing]
          : [
              row.name,
              ...place(row),
              rate(row.value, unit),
              rate(row.low, unit),
              rate(row.high, unit),
              interval(row.relative),
              ...[...kinds.keys()].map((kind) => {
                const one = figureOf(row, kind);
                return one ? figureWords(one) : "";
              }),
            ],
      ),
  };
}

// One curve for each series, of what `pick` gives of a row.
function curves({ names, colours, knees, onCurve, experiment }, pick) {
  const of = (series) =>
    onCurve
      .filter((row) => row.series === series && pick(row))
      .sort((a, b) => a.x - b.x)
      .map((row) => ({ x: row.x, ...pick(row) }));
  return names
    .map((series) => ({
      name: series || experiment.name,
      className: colours.get(series),
      points: of(series),
      knee: (knees.find((knee) => knee[0] === series) || [])[1],
    }))
    .filter((one) => one.points.length);
}
const seriesKey = ({ names, colours }, rows) =>
  key(names.filter((name) => rows.some((row) => row.series === name)).map((name) => [colours.get(name), name || "all"]));

function curveFigure(view) {
  const { unit, xName, xShown, command, knees, onCurve } = view;
  const bent = knees.map((knee) => `\`${knee[0]}\` at ${xShown(knee[1])}`).join(", ");
  const point = (row) => ({
    value: row.value,
    low: row.low,
    high: row.high,
    shown: `${rate(row.value, unit)} (${halfOf(rate(row.low, unit), rate(row.high, unit), row.rounds)})`,
  });
  const axes = { xName, xShown, yShown: (value) => rate(value, unit).replace(/ op\/s$/, ""), unit };
  return figure({
    kind: "curve",
    wide: true,
    command,
    title: bent ? `${unit} by ${xName}; the knee: ${bent}` : `${unit} by ${xName}`,
    how: "Higher is better. Medians over rounds; the upright lines hold the middle half of them. A ring marks the knee, after which the curve no longer rises.",
    legend: seriesKey(view, onCurve),
    draw: (width) => curveChart(width, curves(view, point), axes),
    ...experimentTable(view),
  });
}

// What was counted beside the rate bends too: a small chart for each such figure that at least two places have.
function besideFigures(view) {
  const { kinds, onCurve, xName, xShown, command } = view;
  return [...kinds].flatMap(([kind, { name, unit }]) => {
    const having = onCurve.filter((row) => figureOf(row, kind));
    if (new Set(having.map((row) => row.x)).size < 2) return [];
    const point = (row) => {
      const one = figureOf(row, kind);
      return one && { value: one.value, low: one.value, high: one.value, shown: figureWords(one) };
    };
    const onAxis = text(unit).startsWith("ns") ? "ns" : unit === "bytes/s" ? unit : "";
    const axes = { xName, xShown, yShown: (value) => figureWords({ value, unit: onAxis }).trim(), unit };
    return [
      figure({
        kind: "beside",
        command,
        title: `${text(name)} by ${xName}`,
        how: unit,
        legend: seriesKey(view, having),
        draw: (width) => curveChart(width, curves({ ...view, knees: [] }, point), axes),
        head: ["row", xName, text(name)],
        rows: () => having.map((row) => [row.name, xShown(row.x), figureWords(figureOf(row, kind))]),
      }),
    ];
  });
}

function ratesFigure(view) {
  const { experiment, rows, measured, names, unit, less, unitName, command, colours } = view;
  const best = measured.reduce((a, b) => (less ? b.value < a.value : b.value > a.value) ? b : a);
  // Series that are no groups say nothing: the best row and the baseline stand out instead.
  const alike = names.length < 2 || names.length === rows.length;
  const role = (row) => (row === best ? "s-best" : row.name === experiment.baseline ? "s-base" : "s-plain");
  const against = (row) =>
    row.relative ? `, ${times(row.relative.speedup)}${mark(row.relative)}` : "";
  const lines = (row) =>
    row.missing
      ? [row.missing]
      : [
          `${rate(row.value, unit)} (median of ${plural(row.rounds, "round")}; ${halfOf(rate(row.low, unit), rate(row.high, unit), row.rounds)})`,
          row.relative ? `${interval(row.relative)} of the baseline, ${verdictWords(row.relative)}` : null,
          ...row.figures.map((one) => `${text(one.name)}: ${figureWords(one)}`),
        ];
  const drawn = rows.map((row) => ({
    ...row,
    className: alike ? role(row) : colours.get(row.series),
    shown: rate(row.value, unit) + against(row),
    lines: lines(row),
  }));
  return figure({
    kind: "rates",
    wide: true,
    command,
    title: less
      ? `${unitName}: shortest with \`${best.name}\`, ${time(best.value)}`
      : measured.length > 1
        ? `\`${best.name}\` reaches most: ${rate(best.value, unit)}`
        : `\`${best.name}\`: ${rate(best.value, unit)}`,
    how: `${less ? "Shorter" : "Longer"} is better: the median over rounds; the line holds the middle half of them.`,
    legend: alike ? null : seriesKey(view, rows),
    draw: (width) => rowsChart(width, drawn, { unit: (value) => rate(value, unit) }),
    ...experimentTable(view),
  });
}

function operationsFigure({ measured, command }) {
  const timed = measured.filter((row) => row.latency && row.latency.count > 0 && list(row.latency.buckets).length);
  if (!timed.length) return null;
  const classes = new Map();
  const pick = (name) =>
    classes.set(name, ["s-base", "s-best", ...PICKS].find((one) => ![...classes.values()].includes(one)) || "s6");
  for (const row of timed.length <= 5 ? timed : [timed[0], timed[timed.length - 1]]) pick(row.name);
  const focus = { measured: timed.map((row) => ({ name: row.name })), classes, pick };
  const series = () =>
    timed.map((row) => ({
      name: row.name,
      histogram: row.latency,
      className: classes.get(row.name),
      strong: classes.has(row.name),
    }));
  const card = figure({
    kind: "distribution",
    wide: true,
    command,
    title: "How the times of single operations spread",
    how: "Every operation of all rounds; both axes stretched so that the slow tail can be read. Further left is faster. Pick rows to compare:",
    legend: chips(focus, () => card.repaint()),
    draw: (width) => distributionChart(width, series(), "operation"),
    head: ["row", "operations", "fastest", "p50", "p90", "p99", "p99.9", "slowest"],
    rows: () =>
      timed.map(({ name, latency }) => [
        name,
        count(latency.count),
        ...[latency.min_ns, latency.p50_ns, latencyAt(latency, 0.9), latency.p99_ns, latency.p999_ns, latency.max_ns].map(time),
      ]),
  });
  return card;
}

function experimentSection(experiment, n) {
  const view = experimentView(experiment);
  const figs = [];
  if (view.onCurve.length) figs.push(curveFigure(view), ...besideFigures(view));
  else if (view.measured.length) figs.push(ratesFigure(view));
  figs.push(...[operationsFigure(view)].filter(Boolean));
  const facts = [
    namedPlace(experiment.place),
    placeWords(experiment.place),
    finite(experiment.rounds) ? `${plural(experiment.rounds, "round")}, seed ${experiment.seed}` : null,
  ];
  // The finding of a lone experiment stands at the head of the page.
  const alone = !runs.length && list(data.experiments).length === 1;
  const sentence = !alone && experiment.finding && experiment.finding.sentence;
  const failed = view.rows.filter((row) => row.missing);
  section(
    `experiment-${n + 1}`,
    text(experiment.title) || text(experiment.name) || "Experiment",
    el("p", { class: "facts" }, facts.filter(Boolean).join(". ")),
    sentence ? el("p", { class: "finding" }, marked(sentence)) : null,
    notes(experiment.notes),
    figs.length ? grid(...figs) : absent("Nothing was measured here."),
    failed.length && (view.onCurve.length || !figs.length)
      ? table(
          ["row", "why it has no figures"],
          failed.map((row) => [row.name, row.missing]),
          "Rows without figures",
        )
      : null,
  );
}

// ---- what fallocate did: the file after the call as a strip of its blocks

const UNITS = { B: 1, KiB: KI, MiB: KI ** 2, GiB: KI ** 3, TiB: KI ** 4 };
const AMOUNT = "(\\d+(?:\\.\\d+)?)(B|KiB|MiB|GiB|TiB)?";
const EXTENT = new RegExp(`^${AMOUNT}(\\+|\\.\\.)${AMOUNT} (.+)$`);
// `0B+8KiB written` (from, length) or `0..8192 written` (from, to).
function extent(words) {
  const found = EXTENT.exec(text(words));
  if (!found) return null;
  const from = Number(found[1]) * UNITS[found[2] || "B"];
  const second = Number(found[4]) * UNITS[found[5] || "B"];
  return { from, to: found[3] === "+" ? from + second : second, state: found[6] };
}
const stateClass = (state) =>
  state.startsWith("unwritten") ? "b-unwritten" : state.startsWith("written") ? "b-written" : "b-other";
// rows: { name, done, answer, facts, lines }
function stripsChart(width, rows) {
  const narrow = width < 540;
  const longest = Math.max(...rows.map((row) => row.name.length), 4) * CHARACTER + 14;
  const left = narrow ? 2 : Math.min(longest, width * 0.34);
  const right = narrow ? width - 2 : width - 170;
  const step = narrow ? 46 : 25;
  const extents = rows.map((row) =>
    list(row.facts && row.facts.extents)
      .map(extent)
      .filter(Boolean),
  );
  const end = Math.max(
    ...rows.map((row, n) => Math.max(row.facts ? row.facts.size_bytes || 0 : 0, ...extents[n].map((one) => one.to))),
    1,
  );
  const x = linear(end, left, right, bytes);
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => [end * part, bytes(end * part)]);
  const chart = canvas(width, rows.length * step + 26);
  const bottom = rows.length * step + 2;
  x.ticks = narrow ? [ticks[0], ticks[4]] : ticks;
  x.ticks.forEach(([value, words]) =>
    chart.append(line(x.at(value), 0, x.at(value), bottom, "grid"), tickLabel(x.at(value), bottom + 16, words, width)),
  );
  rows.forEach((row, n) => {
    const y = n * step;
    const middle = narrow ? y + 31 : y + step / 2;
    const group = namedRow(row, { y, middle, step, width, left, narrow, room: width - 140 });
    const facts = row.facts || {};
    if (row.done) {
      // Up to the file's size a hole; what is drawn over it has blocks.
      group.append(
        sv("rect", {
          x: x.at(0),
          y: middle - 6,
          width: Math.max(0.5, x.at(facts.size_bytes || 0) - x.at(0)),
          height: 12,
          class: "mark b-hole",
        }),
      );
      for (const one of extents[n]) {
        group.append(
          sv("rect", {
            x: x.at(one.from),
            y: middle - 6,
            width: Math.max(1, x.at(one.to) - x.at(one.from)),
            height: 12,
            class: `mark ${stateClass(one.state)}`,
          }),
        );
      }
      const size = x.at(facts.size_bytes || 0);
      group.append(line(size, middle - 9, size, middle + 9, "whisker"));
      const words = `${bytes(facts.size_bytes)}, ${count(facts.blocks)} blocks`;
      group.append(narrow ? label(width - 2, y + 14, words, "value", "end") : label(right + 12, middle + 4, words, "value"));
    } else {
      group.append(
        sv("rect", { x: x.at(0), y: middle - 6, width: right - left, height: 12, class: "mark b-refused" }),
        narrow
          ? label(width - 2, y + 14, text(row.answer), "missing", "end")
          : label(right + 12, middle + 4, shortened(text(row.answer), 158), "missing"),
      );
    }
    chart.append(says(group, [row.name, ...list(row.lines)]));
  });
  return chart;
}

// ---- identical arms: each pair a dot

function pairsChart(width, speedups) {
  const [height, left, right, bottom] = [132, 16, width - 16, 100];
  const all = sorted(speedups);
  const x = logarithmic(Math.min(all[0], 0.96), Math.max(all[all.length - 1], 1.04), left, right, 2 ** 0.25, (value) =>
    digits(value),
  );
  const chart = canvas(width, height);
  chart.append(sv("rect", { x: x.at(1 / 1.03), y: 6, width: x.at(1.03) - x.at(1 / 1.03), height: bottom - 6, class: "band" }));
  for (const [value, words] of x.ticks)
    chart.append(line(x.at(value), 6, x.at(value), bottom, "grid"), tickLabel(x.at(value), bottom + 16, words, width));
  chart.append(line(x.at(1), 6, x.at(1), bottom, "reference"));
  const stacks = new Map();
  const marks = sv("g", {}, sv("rect", { x: left, y: 0, width: right - left, height: bottom, class: "hit" }));
  for (const value of all) {
    const column = Math.round(x.at(value) / 7);
    const n = stacks.get(column) || 0;
    stacks.set(column, n + 1);
    marks.append(sv("circle", { cx: column * 7, cy: Math.max(8, bottom - 6 - n * 7), r: 3, class: "mark dot s-best" }));
  }
  chart.append(
    says(marks, [
      "speedups of identical arms",
      `lowest ${times(all[0])}`,
      `median ${times(median(all))}`,
      `highest ${times(all[all.length - 1])}`,
    ]),
  );
  return chart;
}

// ---- their sections

function atlasSection(atlas, n, all) {
  const cells = list(atlas.cells);
  const command = text(data.command);
  const rows = cells.map((cell) => {
    const after = cell.after || {};
    const before = cell.before || {};
    return {
      name: `${text(cell.mode)}, ${cell.offset_bytes ? `${bytes(cell.offset_bytes)} + ` : ""}${bytes(cell.len_bytes)}`,
      done: cell.done,
      answer: cell.answer,
      facts: after,
      lines: [
        cell.done ? null : `refused: ${text(cell.answer)}`,
        `before: ${bytes(before.size_bytes)}, ${count(before.blocks)} blocks, ${list(before.extents).join(", ")}`,
        `after: ${bytes(after.size_bytes)}, ${count(after.blocks)} blocks, ${list(after.extents).join(", ")}`,
        `reads back as ${list(after.content).join(", ") || "nothing"}`,
      ],
    };
  });
  const figs = [];
  const start = cells.find((cell) => cell.before && list(cell.before.extents).length);
  if (rows.length) {
    figs.push(
      figure({
        kind: "atlas",
        wide: true,
        command,
        title: `What each call of fallocate leaves of a file on ${placeName(atlas.place)}`,
        how: `The file after the call, block by block; the upright line is its size.${start ? ` Before each call: ${bytes(start.before.size_bytes)}, ${list(start.before.extents).join(", ")}.` : ""}`,
        legend: key([
          ["b-written", "written"],
          ["b-unwritten", "reserved, unwritten"],
          ["b-hole", "hole"],
          ["b-refused", "refused"],
        ]),
        draw: (width) => stripsChart(width, rows),
        head: ["call", "answer", "size before", "size after", "blocks before", "blocks after", "extents after", "reads back as"],
        rows: () =>
          cells.map((cell, at) => [
            rows[at].name,
            text(cell.answer),
            bytes((cell.before || {}).size_bytes),
            bytes((cell.after || {}).size_bytes),
            count((cell.before || {}).blocks),
            count((cell.after || {}).blocks),
            list((cell.after || {}).extents).join(", "),
            list((cell.after || {}).content).join(", "),
          ]),
      }),
    );
  }
  const zeroing = list(atlas.zeroing);
  const total = (cell) => cell.call_ns + (cell.sync_ns || 0);
  const quick = zeroing.filter((cell) => finite(cell.call_ns)).sort((a, b) => total(a) - total(b))[0];
  if (quick) {
    figs.push(
      figure({
        kind: "zeroing",
        wide: true,
        command,
        title: `Zeroing ${bytes(zeroing[0].len_bytes)} on ${placeName(atlas.place)}${quick.blocks_are ? `: by \`${text(quick.way)}\` in ${time(total(quick))}, and the blocks are ${text(quick.blocks_are)}` : ""}`,
        how: "The call and the sync after it. Blocks that stay unwritten still cost a conversion at their first write.",
        draw: (width) =>
          rowsChart(
            width,
            zeroing.map((cell) => ({
              name: text(cell.way),
              value: finite(cell.call_ns) ? total(cell) : null,
              className: cell.blocks_are === "written" ? "s-best" : "s-plain",
              missing: text(cell.answer),
              shown: `${time(total(cell))}, ${text(cell.blocks_are)}`,
              lines: [
                `call ${time(cell.call_ns)}, sync ${time(cell.sync_ns)}`,
                `answer: ${text(cell.answer)}`,
                cell.blocks_are ? `the blocks are ${cell.blocks_are}` : null,
              ],
            })),
            { unit: time },
          ),
        head: ["way", "bytes", "call", "sync", "answer", "blocks are"],
        rows: () =>
          zeroing.map((cell) => [
            text(cell.way),
            bytes(cell.len_bytes),
            time(cell.call_ns),
            time(cell.sync_ns),
            text(cell.answer),
            text(cell.blocks_are),
          ]),
      }),
    );
  }
  const title = all.length > 1 ? `fallocate, mode by mode: ${placeName(atlas.place)}` : "fallocate, mode by mode";
  section(
    `fallocate-${n + 1}`,
    title,
    el("p", { class: "facts" }, placeWords(atlas.place)),
    figs.length ? grid(...figs) : absent("No call was made here."),
  );
}

function pairsSection(aa, id = "identical") {
  const speedups = sorted(list(aa.speedups));
  section(
    id,
    "Identical ways against each other",
    el(
      "p",
      { class: "finding" },
      `${count(aa.different)} of ${plural(aa.pairs, "pair")} of \`${text(aa.cell)}\` with itself were called different; chance explains about one in twenty.`.replaceAll(
        "`",
        "",
      ),
    ),
    speedups.length
      ? grid(
          figure({
            kind: "pairs",
            wide: true,
            command: text(data.command),
            title: "What noise alone does to a speedup here: each dot is a pair of identical ways",
            how: `${plural(aa.rounds, "round")} in each pair. The band is 3% around 1: effects inside it count as ties.`,
            draw: (width) => pairsChart(width, speedups),
            head: ["pairs", "lowest", "median", "highest", "called different"],
            rows: () => [
              [
                count(aa.pairs),
                times(speedups[0]),
                times(median(speedups)),
                times(speedups[speedups.length - 1]),
                count(aa.different),
              ],
            ],
          }),
        )
      : absent("No pair was finished."),
  );
}
