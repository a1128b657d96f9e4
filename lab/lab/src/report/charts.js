// The charts: each takes plain data and a width, and gives an <svg>.
"use strict";

// A row: its place under the pointer, and its name, above the marks where the chart is narrow, else beside them.
function namedRow(row, { y, middle, step, width, left, narrow, room = width - 4 }, className) {
  return sv(
    "g",
    { class: className || "", "data-row": "" },
    sv("rect", { x: 0, y, width, height: step, class: "hit" }),
    label(
      narrow ? 2 : left - 10,
      narrow ? y + 14 : middle + 4,
      shortened(row.name, narrow ? room : left - 14),
      "name",
      narrow ? "start" : "end",
    ),
  );
}

// ---- rows with a bar or a dot, an interval, and the value in figures

// rows: { name, value, low, high, shown, className, lines, missing, weak, band: { from, to } behind the row }
// options: { dots, reference, unit(value), axis }
function rowsChart(width, rows, options) {
  const narrow = width < 540;
  const longest = Math.max(...rows.map((row) => row.name.length), 4) * CHARACTER + 14;
  const left = narrow ? 2 : Math.min(longest, width * 0.44);
  const step = narrow ? 42 : 27;
  const shownRoom = Math.max(...rows.map((row) => text(row.shown).length), 3) * CHARACTER + 12;
  // Dots leave a column for the figures; behind bars they stand where the bar ends.
  const right = width - Math.min(shownRoom, width * 0.5);
  const bands = rows.flatMap((row) => (row.band ? [row.band.from, row.band.to] : [])).filter((end) => end > 0);
  const ends = sorted([...rows.flatMap((row) => [row.value, row.low, row.high]), ...bands]);
  const top = ends.length ? ends[ends.length - 1] : 1;
  const lowest = options.dots ? Math.min(ends[0] ?? 1, options.reference ?? Infinity) : 0;
  const scale = options.dots
    ? logarithmic(lowest, Math.max(top, options.reference ?? 0), left + 6, right, 2, options.unit)
    : linear(top, left, right, options.unit);
  const height = rows.length * step + 34;
  const chart = canvas(width, height);
  const bottom = rows.length * step + 4;
  for (const [value, words] of scale.ticks) {
    const x = scale.at(value);
    chart.append(line(x, 0, x, bottom, "grid"), tickLabel(x, bottom + 15, words, width));
  }
  if (options.axis) chart.append(label(left, bottom + 29, options.axis, "tick"));
  rows.forEach((row, n) => {
    const y = n * step;
    const middle = narrow ? y + 29 : y + step / 2;
    // No line through a name above its row, nor through words in place of a figure.
    if (finite(options.reference) && finite(row.value)) {
      const x = scale.at(options.reference);
      chart.append(line(x, narrow ? y + 20 : y, x, y + step, "reference"));
    }
    const group = namedRow(row, { y, middle, step, width, left, narrow }, row.weak ? "weak" : "");
    if (row.band && finite(row.value)) {
      const [a, b] = [row.band.from > 0 ? scale.at(row.band.from) : left, finite(row.band.to) ? scale.at(row.band.to) : right];
      group.append(sv("rect", { x: a, y: middle - 8, width: Math.max(2, b - a), height: 16, class: "band" }));
    }
    if (!finite(row.value)) {
      group.append(label(left + (narrow ? 0 : 4), middle + 4, shortened(row.missing || "not measured", width - left), "missing"));
    } else {
      const [at, zero] = [scale.at(row.value), scale.at(0)];
      if (!options.dots) {
        group.append(
          sv("rect", {
            x: zero,
            y: middle - 7,
            width: Math.max(1, at - zero),
            height: 14,
            rx: 1.5,
            class: `mark bar ${row.className}`,
          }),
        );
      }
      if (finite(row.low) && finite(row.high)) {
        const [a, b] = [scale.at(row.low), scale.at(row.high)];
        group.append(line(a, middle, b, middle, `whisker ${options.dots ? row.className : ""}`));
        if (!options.dots)
          group.append(line(a, middle - 4, a, middle + 4, "whisker"), line(b, middle - 4, b, middle + 4, "whisker"));
      }
      if (options.dots) group.append(sv("circle", { cx: at, cy: middle, r: 4.5, class: `mark dot ${row.className}` }));
      const end = options.dots ? right + 10 : Math.max(at, finite(row.high) ? scale.at(row.high) : 0) + 7;
      group.append(label(end, middle + 4, text(row.shown), "value"));
    }
    chart.append(says(group, [row.name, ...list(row.lines)]));
  });
  return chart;
}

// ---- a frame for curves

function frame(width, height, x, y, words) {
  const chart = canvas(width, height);
  for (const [value, shown] of y.ticks) {
    chart.append(
      line(words.left, y.at(value), words.right, y.at(value), "grid"),
      label(words.left - 6, y.at(value) + 4, shown, "tick", "end"),
    );
  }
  for (const [value, shown] of x.ticks) {
    const at = x.at(value);
    chart.append(line(at, words.top, at, words.bottom, "grid"), tickLabel(at, words.bottom + 16, shown, width));
  }
  if (words.xName) chart.append(label(words.right, words.bottom + 31, words.xName, "tick", "end"));
  if (words.yName) chart.append(label(2, 11, words.yName, "tick"));
  return chart;
}
const points = (all) => all.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");

// ---- latency distribution: how many commits were at least as fast

// series: { name, className, histogram, strong }
const nines = (share, commits) => Math.min(-Math.log10(Math.max(1 - share, 1e-12)), Math.log10(commits) + 0.25);
const EXACT = { 0.5: "p50_ns", 0.99: "p99_ns", 0.999: "p999_ns" };
function latencyAt(histogram, share) {
  if (finite(histogram[EXACT[share]])) return histogram[EXACT[share]];
  const wanted = share * histogram.count;
  let seen = 0;
  for (const [ns, n] of list(histogram.buckets)) {
    seen += n;
    if (seen >= wanted - 1e-9) return Math.min(ns, histogram.max_ns ?? ns);
  }
  return histogram.max_ns ?? null;
}
const LEVELS = [
  [0, "fastest"],
  [0.5, "50%"],
  [0.9, "90%"],
  [0.99, "99%"],
  [0.999, "99.9%"],
  [0.9999, "99.99%"],
  [0.99999, "99.999%"],
];
function distributionChart(width, series, what) {
  const [top, height, left] = [18, 290, 60];
  const [right, bottom] = [width - 12, height - 42];
  const drawn = series.filter((one) => list(one.histogram.buckets).length);
  const strong = drawn.filter((one) => one.strong);
  const commits = Math.max(...drawn.map((one) => one.histogram.count), 2);
  const highest = nines(1, commits);
  const x = logarithmic(
    Math.min(...drawn.map((one) => one.histogram.min_ns)),
    Math.max(...drawn.map((one) => one.histogram.max_ns)),
    left,
    right,
    10,
    time,
  );
  const levels = LEVELS.filter(([share]) => nines(share, commits) < highest - 0.12);
  const yOf = (share) => bottom - (nines(share, commits) / highest) * (bottom - top);
  const chart = frame(
    width,
    height,
    x,
    { at: yOf, ticks: levels.map(([share, words]) => [share, share ? words : "0%"]) },
    { left, right, top, bottom, xName: `time of one ${what}`, yName: `share of ${what}s that took at most this long` },
  );
  for (const one of [...drawn.filter((other) => !other.strong), ...strong]) {
    let seen = 0;
    const path = [[x.at(one.histogram.min_ns), bottom]];
    for (const [ns, n] of one.histogram.buckets) {
      seen += n;
      const share = seen / one.histogram.count;
      path.push([
        x.at(Math.min(ns, one.histogram.max_ns)),
        bottom - (nines(share, one.histogram.count) / highest) * (bottom - top),
      ]);
    }
    chart.append(sv("polyline", { points: points(path), class: `mark curve ${one.strong ? one.className : "context"}` }));
  }
  const hits = [...levels.map(([share, words]) => [share, words]), [1, "slowest"]];
  hits.forEach(([share, words], n) => {
    const [here, above, below] = [n, n + 1, n - 1].map((at) => hits[at] && yOf(hits[at][0]));
    const from = above === undefined ? top - 10 : (here + above) / 2;
    const to = below === undefined ? bottom + 6 : (here + below) / 2;
    const group = sv(
      "g",
      {},
      sv("rect", { x: left, y: from, width: right - left, height: Math.max(1, to - from), class: "hit" }),
      line(left, here, right, here, "cross"),
    );
    const head = share === 1 ? `the slowest ${what}` : share === 0 ? `the fastest ${what}` : `${words} of ${what}s took at most`;
    chart.append(
      says(group, [
        head,
        ...strong.map(
          (one) =>
            `${one.name}: ${time(share === 0 ? one.histogram.min_ns : share === 1 ? one.histogram.max_ns : latencyAt(one.histogram, share))}`,
        ),
      ]),
    );
  });
  return chart;
}

// ---- latency over time: rounds side by side, in each the median and the slowest commit of a slice

// series: { name, className, rounds: [[[sum, median, max], ...], ...], numbers: [round of the run, ...] }
function overTimeChart(width, series) {
  const [top, height, left] = [18, 290, 54];
  const [right, bottom] = [width - 12, height - 42];
  const rounds = Math.max(1, ...series.flatMap((one) => one.numbers.map((n) => n + 1)));
  const all = series.flatMap((one) => one.rounds.flat());
  const y = logarithmic(
    Math.min(...all.map((slice) => slice[1])),
    Math.max(...all.map((slice) => slice[2])),
    bottom,
    top,
    10,
    time,
  );
  const wide = (right - left) / rounds;
  const every = Math.ceil(rounds / Math.max(1, (right - left) / 26));
  const ticks = [];
  for (let n = 0; n < rounds; n += every) ticks.push([n, String(n + 1)]);
  const chart = frame(width, height, { at: (n) => left + (n + 0.5) * wide, ticks: [] }, y, {
    left,
    right,
    top,
    bottom,
    xName: width < 340 ? "round of the run" : "round of the run (each from its first to its last commit)",
    yName: "time of a commit: median, slowest",
  });
  for (let n = 0; n <= rounds; n += 1) chart.append(line(left + n * wide, top, left + n * wide, bottom, "grid"));
  for (const [n, words] of ticks) chart.append(label(left + (n + 0.5) * wide, bottom + 16, words, "tick", "middle"));
  for (const one of series) {
    one.rounds.forEach((slices, at) => {
      const total = sum(slices.map((slice) => slice[0])) || 1;
      const from = left + one.numbers[at] * wide + wide * 0.06;
      let before = 0;
      const path = slices.map(([sum_ns, median_ns, max_ns]) => {
        const x = from + ((before + sum_ns / 2) / total) * wide * 0.88;
        before += sum_ns;
        return [x, y.at(median_ns), y.at(max_ns)];
      });
      for (const [x, , worst] of path)
        chart.append(sv("circle", { cx: x.toFixed(1), cy: worst.toFixed(1), r: 1.6, class: `mark spot ${one.className}` }));
      chart.append(sv("polyline", { points: points(path), class: `mark curve ${one.className}` }));
    });
  }
  for (let n = 0; n < rounds; n += 1) {
    const lines = series.map((one) => {
      const slices = one.rounds[one.numbers.indexOf(n)];
      return slices && slices.length
        ? `${one.name}: median ${time(median(slices.map((slice) => slice[1])))}, slowest ${time(Math.max(...slices.map((slice) => slice[2])))}`
        : `${one.name}: not in this round`;
    });
    chart.append(
      says(sv("g", {}, sv("rect", { x: left + n * wide, y: top, width: wide, height: bottom - top, class: "hit" })), [
        `round ${n + 1}`,
        ...lines,
      ]),
    );
  }
  return chart;
}

// ---- the bill of a commit: requests by kind as one stacked bar, flushes beside

// rows: { name, parts: [{ className, name, requests, bytes }], flushes, lines, missing }
function billChart(width, rows, mark) {
  const narrow = width < 540;
  const longest = Math.max(...rows.map((row) => row.name.length), 4) * CHARACTER + 14;
  const left = narrow ? 2 : Math.min(longest, width * 0.36);
  const step = narrow ? 42 : 27;
  const gap = 54;
  const split = left + (width - left) * 0.68;
  const top = 22;
  const most = Math.max(...rows.map((row) => sum(list(row.parts).map((part) => part.requests))), 1e-9);
  const mostFlushes = Math.max(...rows.map((row) => row.flushes || 0), 1e-9);
  const requests = linear(most, left, split - gap, digits);
  const flushes = linear(mostFlushes, split, width - 44, digits);
  const chart = canvas(width, rows.length * step + top + 24);
  const bottom = rows.length * step + top;
  chart.append(
    label(left, 13, "requests per commit", "tick"),
    label(split, 13, narrow ? "flushes" : "flushes per commit", "tick"),
  );
  for (const scale of [requests, flushes]) {
    for (const [value, words] of scale.ticks) {
      chart.append(
        line(scale.at(value), top - 4, scale.at(value), bottom, "grid"),
        tickLabel(scale.at(value), bottom + 16, words, width),
      );
    }
  }
  rows.forEach((row, n) => {
    const y = top + n * step;
    const middle = narrow ? y + 29 : y + step / 2;
    const group = namedRow(row, { y, middle, step, width, left, narrow });
    if (!row.parts) {
      group.append(label(left + (narrow ? 0 : 4), middle + 4, shortened(row.missing || "no bill", width - left), "missing"));
    } else {
      let at = 0;
      for (const part of row.parts.filter((one) => one.requests > 0)) {
        const [a, b] = [requests.at(at), requests.at(at + part.requests)];
        at += part.requests;
        group.append(
          sv("rect", { x: a, y: middle - 7, width: Math.max(0.8, b - a - 0.8), height: 14, class: `mark ${part.className}` }),
        );
      }
      group.append(label(requests.at(at) + 6, middle + 4, mark + digits(at), "value"));
      if (finite(row.flushes)) {
        group.append(
          sv("rect", {
            x: flushes.at(0),
            y: middle - 4,
            width: Math.max(1, flushes.at(row.flushes) - flushes.at(0)),
            height: 8,
            class: "mark k-flush",
          }),
          label(flushes.at(row.flushes) + 6, middle + 4, mark + digits(row.flushes), "value"),
        );
      }
    }
    chart.append(says(group, [row.name, ...list(row.lines)]));
  });
  return chart;
}

// ---- one commit, request by request

const KINDS = [
  ["k-data", "data write", "data writes", "data_writes"],
  ["k-journal", "journal write", "journal writes that the commit waits for", "journal_writes"],
  ["k-timer", "timer journal write", "journal writes of a timer", "timer_journal_writes"],
  ["k-otherjournal", "other journal write", "other journal writes", "other_journal_writes"],
  ["k-metadata", "metadata write", "metadata in place", "metadata_writes"],
  ["k-zeroing", "zeroing", "zeroing commands", "zeroing"],
  ["k-discard", "discard", "discards", "discards"],
  ["k-other", "unattributed write", "writes not attributed", "unattributed_writes"],
  // Of others: in one commit, request by request, and never in a bar of what a commit cost.
  ["k-other", "write of another process", "writes of other processes", ""],
  ["k-read", "data read", "reads of the file", "data_reads"],
  ["k-otherread", "other read", "other reads", "other_reads"],
];
function kindClass(what) {
  const name = text(what);
  if (name.includes("flush")) return "k-flush";
  const known = KINDS.find(([, kind]) => kind === name);
  if (known) return known[0];
  if (name.includes("journal")) return name.includes("timer") ? "k-timer" : "k-otherjournal";
  return name.includes("read") ? "k-otherread" : "k-other";
}
// Requests that overlap get rows of their own.
function lanes(requests, end) {
  const free = [];
  return requests.map((request) => {
    const from = request.issued_ns || 0;
    const to = finite(request.completed_ns) ? request.completed_ns : end;
    let lane = free.findIndex((until) => until <= from);
    if (lane < 0) lane = free.length;
    free[lane] = to;
    return { request, from, to, lane };
  });
}
// commits: [{ name, commit }], one below the other on the same axis of time
function timelineChart(width, commits) {
  const left = width < 540 ? 8 : 64;
  const right = width - 14;
  const end = Math.max(
    ...commits.flatMap(({ commit }) => [
      commit.total_ns || 0,
      ...list(commit.requests).map((one) => one.completed_ns || one.issued_ns || 0),
    ]),
    1,
  );
  const x = linear(end, left, right, time);
  const parts = [];
  let y = 4;
  for (const { name, commit } of commits) {
    const from = y;
    y += 20;
    const shownName = shortened(name, width * 0.8);
    parts.push(label(2, y - 5, shownName, "name strong"));
    if (finite(commit.total_ns)) {
      // Beside its line, and beside or below the name.
      const at = x.at(commit.total_ns);
      const words = `acknowledged after ${time(commit.total_ns)}`;
      const room = words.length * 6.6;
      const before = at > room + left && at + room > right;
      if ((before ? at - room : at) < shownName.length * 8.2) y += 16;
      parts.push(label(at + (before ? -5 : 5), y - 5, words, "value", before ? "end" : "start"));
    }
    const devices = [...new Set(list(commit.requests).map((one) => text(one.device)))];
    if (!devices.length) {
      y += 18;
      parts.push(label(left, y - 4, "no request reached a device before the acknowledgement", "missing"));
    }
    for (const device of devices) {
      y += width < 540 ? 15 : 4;
      const laid = lanes(
        list(commit.requests)
          .filter((one) => text(one.device) === device)
          .sort((a, b) => a.issued_ns - b.issued_ns),
        end,
      );
      parts.push(
        width < 540
          ? label(left, y - 3, shortened(device, width - left), "tick")
          : label(left - 8, y + 13, shortened(device, left - 8), "tick", "end"),
      );
      for (const { request, from: a, to: b, lane } of laid) {
        const top = y + lane * 21;
        const open = !finite(request.completed_ns);
        const wide = Math.max(2, x.at(b) - x.at(a));
        const next = Math.min(right, ...laid.filter((one) => one.lane === lane && one.from >= b).map((one) => x.at(one.from)));
        // As many words as there is room for: in the bar, else behind it, else none; the tooltip has all.
        const variants = [
          [request.what, request.bytes ? bytes(request.bytes) : ""].filter(Boolean).join(", "),
          text(request.what),
        ];
        const fits = (room) => variants.find((one) => one.length * 6.2 + 9 < room);
        const inside = fits(wide);
        const beyond = !inside && fits(next - x.at(b));
        const className = kindClass(request.what);
        const group = sv(
          "g",
          {},
          sv("rect", { x: x.at(a), y: top, width: wide, height: 17, rx: 2, class: `mark ${className}${open ? " open" : ""}` }),
          (inside || beyond) &&
            label(inside ? x.at(a) + 5 : x.at(b) + 4, top + 12.5, inside || beyond, inside ? `on ${className}` : "off"),
        );
        parts.push(
          says(group, [
            request.what,
            `${device}, by ${text(request.who)}`,
            `issued after ${time(a)}`,
            open ? "no completion seen" : `completed after ${time(b)} (took ${time(b - a)})`,
            request.bytes ? `${bytes(request.bytes)} at sector ${count(request.sector)}` : null,
            request.flags ? `flags ${request.flags}` : null,
          ]),
        );
      }
      y += 21 * Math.max(1, ...laid.map((one) => one.lane + 1));
    }
    if (finite(commit.total_ns)) {
      parts.push(line(x.at(commit.total_ns), from + 4, x.at(commit.total_ns), y + 2, "acknowledged"));
    }
    y += 14;
  }
  const chart = canvas(width, y + 24);
  for (const [value, words] of x.ticks)
    chart.append(line(x.at(value), 0, x.at(value), y, "grid"), tickLabel(x.at(value), y + 16, words, width));
  chart.append(...parts);
  return chart;
}

// ---- curves over a quantity: threads, writes in flight, bytes per write

// series: { name, className, points: [{ x, value, low, high, lines }], knee }
function curveChart(width, series, { xName, xShown, yShown, unit }) {
  const [top, height, left] = [20, 330, 66];
  const [right, bottom] = [width - 16, height - 44];
  const all = series.flatMap((one) => one.points);
  const xs = [...new Set(all.map((point) => point.x))].sort((a, b) => a - b);
  const x = logarithmic(xs[0], xs[xs.length - 1], left, right, 2, xShown);
  // The points that were measured are the ticks; where they stand too close, every other one.
  const room = Math.max(1, Math.ceil((xs.length * 44) / (right - left)));
  x.ticks = xs.filter((_, n) => n % room === 0).map((value) => [value, xShown(value)]);
  const y = linear(Math.max(...all.map((point) => point.high)), bottom, top, yShown);
  const chart = frame(width, height, x, y, { left, right, top, bottom, xName, yName: unit });
  const ends = [];
  for (const one of series) {
    for (const point of one.points)
      chart.append(line(x.at(point.x), y.at(point.low), x.at(point.x), y.at(point.high), `whisker ${one.className}`));
    chart.append(
      sv("polyline", {
        points: points(one.points.map((point) => [x.at(point.x), y.at(point.value)])),
        class: `mark curve ${one.className}`,
      }),
    );
    for (const point of one.points)
      chart.append(sv("circle", { cx: x.at(point.x), cy: y.at(point.value), r: 3, class: `mark dot ${one.className}` }));
    const knee = finite(one.knee) && one.points.find((point) => point.x === one.knee);
    if (knee) {
      chart.append(
        line(x.at(knee.x), y.at(knee.value), x.at(knee.x), bottom, `knee ${one.className}`),
        sv("circle", { cx: x.at(knee.x), cy: y.at(knee.value), r: 8, class: `mark ring ${one.className}`, "data-knee": "" }),
      );
      // Beside the foot of its line, where no curve is.
      const late = x.at(knee.x) > (left + right) / 2;
      ends.push({
        x: x.at(knee.x) + (late ? -6 : 6),
        y: bottom - 10 - 16 * ends.length,
        name: `knee of ${one.name}: ${xShown(knee.x)}`,
        className: one.className,
        anchor: late ? "end" : "start",
      });
    }
  }
  for (const end of ends)
    chart.append(label(end.x, end.y, shortened(end.name, width * 0.6), `name line-name ${end.className}`, end.anchor));
  xs.forEach((value, n) => {
    const from = n ? (x.at(xs[n - 1]) + x.at(value)) / 2 : left;
    const to = n + 1 < xs.length ? (x.at(xs[n + 1]) + x.at(value)) / 2 : right;
    const lines = series.flatMap((one) =>
      one.points.filter((point) => point.x === value).map((point) => `${one.name}: ${point.shown}`),
    );
    chart.append(
      says(
        sv(
          "g",
          {},
          sv("rect", { x: from, y: top, width: to - from, height: bottom - top, class: "hit" }),
          line(x.at(value), top, x.at(value), bottom, "cross"),
        ),
        [`${xShown(value)} ${text(xName)}`, ...lines],
      ),
    );
  });
  return chart;
}
