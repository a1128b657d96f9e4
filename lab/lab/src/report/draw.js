// What every chart is made of: elements, formats, scales, the tooltip, tables, figures.
// Text that comes from the result goes through textContent or setAttribute, never through HTML.
"use strict";

function add(node, children) {
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

function attributes(node, given) {
  for (const [name, value] of Object.entries(given || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  return node;
}

const el = (tag, given, ...children) => add(attributes(document.createElement(tag), given), children);
const sv = (tag, given, ...children) =>
  add(attributes(document.createElementNS("http://www.w3.org/2000/svg", tag), given), children);

// ---- values that may be missing

const list = (value) => (Array.isArray(value) ? value : []);
const text = (value) => (value === null || value === undefined ? "" : String(value));
const finite = (value) => typeof value === "number" && Number.isFinite(value);
const sorted = (values) => values.filter(finite).sort((a, b) => a - b);
// Between neighbours in proportion, as the lab's own tables have it.
function quantile(values, share) {
  const all = sorted(values);
  if (!all.length) return null;
  const at = (all.length - 1) * share;
  const below = Math.floor(at);
  return all[below] + (all[Math.min(below + 1, all.length - 1)] - all[below]) * (at - below);
}
const median = (values) => quantile(values, 0.5);
const sum = (values) => values.reduce((total, value) => total + (finite(value) ? value : 0), 0);

// The word that follows a compared figure; faster and slower are in the figure itself.
const MARKS = { tie: " tie", "cannot-tell": " ?", unknown: " ?" };
const mark = (relative) => (relative && MARKS[relative.verdict]) || "";
const verdictWords = (relative) => text(relative && relative.verdict).replace("-", " ");

// ---- numbers as people read them

function digits(value) {
  if (!finite(value)) return "not measured";
  const size = Math.abs(value);
  if (size >= 99.95) return Math.round(value).toLocaleString("en-US");
  if (size >= 9.995) return value.toFixed(1);
  return value.toFixed(2);
}
function scaled(value, units) {
  if (!finite(value)) return "not measured";
  let [factor, unit] = units[0];
  // Half a step early, so that nothing is shown as "1,000" of the smaller unit.
  for (const [f, u] of units) if (Math.abs(value) >= f * 0.9995) [factor, unit] = [f, u];
  return `${digits(value / factor)} ${unit}`;
}
const time = (ns) =>
  ns === 0
    ? "0"
    : scaled(ns, [
        [1, "ns"],
        [1e3, "µs"],
        [1e6, "ms"],
        [1e9, "s"],
      ]);
const KI = 1024;
function bytes(value) {
  if (!finite(value)) return "not measured";
  if (value < KI) return `${digits(value).replace(/\.00$/, "")} B`;
  const shown = scaled(value, [
    [KI, "KiB"],
    [KI ** 2, "MiB"],
    [KI ** 3, "GiB"],
    [KI ** 4, "TiB"],
  ]);
  return shown.replace(/\.00? /, " ").replace(/\.0 /, " ");
}
const count = (value) => (finite(value) ? value.toLocaleString("en-US") : "not measured");
const times = (value) => (finite(value) ? `${digits(value)}×` : "not measured");
// Fewer rounds than make an interval have none.
const FEW_ROUNDS = "too few rounds for an interval";
const interval = (relative) =>
  !relative
    ? ""
    : finite(relative.low) && finite(relative.high)
      ? `${times(relative.speedup)} [${digits(relative.low)} to ${digits(relative.high)}]`
      : `${times(relative.speedup)} (${FEW_ROUNDS})`;
// One end of it in a table.
const end = (value) => (finite(value) ? digits(value) : "few rounds");
// Half of the rounds lie within quartiles; a single round has none.
const halfOf = (from, to, rounds) => (rounds > 1 ? `half of them: ${from} to ${to}` : "a single one");
function rate(value, unit) {
  if (!finite(value)) return "not measured";
  if (unit.startsWith("ns")) return time(value);
  if (unit === "bytes/s")
    return scaled(value, [
      [1, "B/s"],
      [1e3, "kB/s"],
      [1e6, "MB/s"],
      [1e9, "GB/s"],
    ]);
  const short = value >= 1e6 ? `${digits(value / 1e6)} M` : value >= 1e4 ? `${digits(value / 1e3)} k` : digits(value);
  return unit === "operations/s" ? `${short} op/s` : `${short} ${unit}`;
}
// On an axis: "1 ms", not "1.00 ms".
const brief = (shown) => shown.replace(/\.0+(?=\D|$)/, "").replace(/(\.\d*?)0+(?=\D|$)/, "$1");
const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many || one + "s"}`;

// ---- scales: value -> pixel, with the ticks to draw

function linear(top, from, to, label) {
  const high = top > 0 ? top : 1;
  // Numbers stand beside each other on the horizontal axis, below each other on the other one.
  const rough = high / Math.max(2, Math.min(6, to > from ? (to - from) / 90 : (from - to) / 45));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const ticks = [];
  for (let n = 0; n * step <= high * 1.001; n += 1) ticks.push([n * step, brief(label(n * step))]);
  const at = (value) => from + (value / high) * (to - from);
  return { at, ticks };
}
// Values on a logarithmic axis: `low` and `high` are widened a little; ticks at powers of `base`.
function logarithmic(low, high, from, to, base, label) {
  let [a, b] = [Math.log(Math.max(low, 1e-12)), Math.log(Math.max(high, 1e-12))];
  const pad = Math.max((b - a) * 0.04, Math.log(1.05));
  [a, b] = [a - pad, b + pad];
  const at = (value) => from + ((Math.log(Math.max(value, 1e-12)) - a) / (b - a)) * (to - from);
  const inverse = (pixel) => Math.exp(a + ((pixel - from) / (to - from)) * (b - a));
  const step = Math.log(base);
  const every = Math.max(1, Math.ceil((b - a) / step / Math.max(2, Math.abs(to - from) / 64)));
  const ticks = [];
  for (let n = Math.ceil(a / step); n * step <= b; n += 1) {
    if (n % every === 0) ticks.push([base ** n, brief(label(base ** n))]);
  }
  // Less than a decade: the ends of the data instead of one lonely tick.
  if (ticks.length < 2 && base === 10) {
    ticks.length = 0;
    const mid = Math.exp((a + b) / 2);
    for (const value of [low, mid, high]) ticks.push([value, label(value)]);
    if (at(mid) - at(low) < 64 && to > from) ticks.splice(1, 1);
    if (ticks.length === 2 && Math.abs(at(high) - at(low)) < 64) ticks.pop();
  }
  return { at, ticks, inverse };
}

// ---- the tooltip, one for the page

const tip = el("div", { id: "tip", role: "tooltip", hidden: "" });
function showTip(lines, x, y) {
  tip.replaceChildren(...lines.filter(Boolean).map((line, n) => el("div", { class: n ? "" : "head" }, line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const right = document.documentElement.clientWidth - box.width - 8;
  tip.style.left = `${Math.max(8, Math.min(x + 14, right))}px`;
  tip.style.top = `${y + 18 + box.height > window.innerHeight ? Math.max(8, y - box.height - 12) : y + 18}px`;
}
const hideTip = () => {
  tip.hidden = true;
};
// Makes a mark say its values: under the pointer, under a finger, and with the keyboard's focus.
function says(node, lines) {
  attributes(node, {
    class: `says ${node.getAttribute("class") || ""}`.trim(),
    tabindex: "-1",
    role: "img",
    "aria-label": lines.filter(Boolean).join("; "),
  });
  node.addEventListener("pointermove", (event) => showTip(lines, event.clientX, event.clientY));
  node.addEventListener("pointerleave", hideTip);
  node.addEventListener("focus", () => {
    const box = node.getBoundingClientRect();
    showTip(lines, box.left + Math.min(box.width / 2, 160), box.top + box.height / 2);
  });
  node.addEventListener("blur", hideTip);
  return node;
}
// One stop of the tabulator key for each chart; the arrow keys go from mark to mark.
function arrows(chart) {
  const marks = [...chart.querySelectorAll(".says")];
  if (marks.length) marks[0].setAttribute("tabindex", "0");
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    const at = marks.indexOf(document.activeElement);
    if (event.key === "Escape") hideTip();
    if (!step || at < 0) return;
    event.preventDefault();
    const next = marks[Math.max(0, Math.min(marks.length - 1, at + step))];
    marks[at].setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
}

// ---- pieces of a page

// With `words` nothing is set flush right as a number.
function table(head, rows, caption, words) {
  const cell = (value, n) => {
    const shown = text(value);
    return n === 0
      ? el("th", { scope: "row" }, shown)
      : el("td", { class: !words && /^[<~]?[-\d]/.test(shown) ? "number" : null }, shown);
  };
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el(
      "table",
      { class: words ? "words" : null },
      el("caption", { class: "hidden" }, caption),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          head.map((name) => el("th", { scope: "col" }, name)),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map((row) => el("tr", {}, row.map(cell))),
      ),
    ),
  );
}

function copyButton(words) {
  const button = el("button", { type: "button", class: "small" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(words);
      button.textContent = "Copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(button.previousElementSibling);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "Selected";
    }
    setTimeout(() => {
      button.textContent = "Copy";
    }, 1500);
  });
  return button;
}

function choice(label, options, chosen, change) {
  const select = el(
    "select",
    {},
    options.map((name, n) => el("option", { value: n, selected: n === chosen ? "" : null }, name)),
  );
  select.addEventListener("change", () => change(Number(select.value)));
  return el("label", { class: "choice" }, el("span", {}, label), select);
}

const key = (entries) =>
  el(
    "ul",
    { class: "key" },
    entries.map(([className, name]) => el("li", {}, el("span", { class: `swatch ${className}` }), name)),
  );

// Titles name cells in `backticks`, as the lab's sentences do.
const marked = (words) =>
  text(words)
    .split("`")
    .map((part, n) => (n % 2 ? el("code", {}, part) : part));

// Every figure of the page, so that a new width draws all of them again.
const figures = [];
let figureNumber = 0;
// `draw(width)` gives an <svg>; `rows()` the same values as a table.
function figure({ kind, title, how, controls, legend, draw, head, rows, command, wide }) {
  figureNumber += 1;
  const id = `figure-${figureNumber}`;
  const plot = el("div", { class: "plot" });
  const exact = el("details", { class: "exact" }, el("summary", {}, "Exact values"));
  const card = el(
    "figure",
    { id, class: wide ? "wide" : "", "data-chart": kind },
    el(
      "figcaption",
      {},
      el("h3", {}, marked(title), el("a", { class: "anchor", href: `#${id}`, "aria-label": "Link to this chart" }, "#")),
      how && el("p", { class: "how" }, how),
    ),
    controls && el("div", { class: "controls" }, controls),
    legend,
    plot,
    exact,
    command && el("p", { class: "again" }, el("span", {}, "Make it again: "), el("code", {}, command), copyButton(command)),
  );
  const paint = () => {
    const style = getComputedStyle(card);
    const inner = card.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const chart = draw(Math.max(260, Math.round(inner > 0 ? inner : 300)));
    attributes(chart, { role: "group", "aria-label": text(title).replaceAll("`", "") });
    plot.replaceChildren(chart);
    arrows(chart);
    exact.replaceChildren(exact.firstElementChild, table(head, rows(), text(title).replaceAll("`", "")));
  };
  figures.push({ card, paint });
  card.repaint = paint;
  return card;
}

const canvas = (width, height) => sv("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
const CHARACTER = 6.9; // of the labels' font, in pixels, about
function shortened(words, pixels) {
  const room = Math.max(4, Math.floor(pixels / CHARACTER));
  return words.length <= room ? words : `${words.slice(0, room - 1)}…`;
}
const label = (x, y, words, className, anchor) =>
  sv("text", { x, y, class: className || "", "text-anchor": anchor || "start" }, words);
// The number of a tick, inside the chart also at its edges.
function tickLabel(x, y, words, width) {
  const half = words.length * 3.4 + 1;
  return label(Math.max(half, Math.min(width - half, x)), y, words, "tick", "middle");
}
const line = (x1, y1, x2, y2, className) => sv("line", { x1, y1, x2, y2, class: className });
