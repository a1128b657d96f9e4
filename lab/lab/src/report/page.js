// The page: which charts a result gives, in which order, and what is said where something is missing.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("charts");
const contents = document.getElementById("contents");
const machine = data.machine || {};
const runs = list(data.runs);

function section(id, title, ...children) {
  contents.append(el("li", {}, el("a", { href: `#${id}` }, title)));
  const node = el(
    "section",
    { id, "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title` }, marked(title)),
    ...children,
  );
  main.append(node);
  return node;
}
const grid = (...children) => el("div", { class: "figures" }, ...children);
const absent = (words) => el("p", { class: "absent" }, words);
const notes = (all) =>
  list(all).length
    ? el(
        "ul",
        { class: "notes" },
        list(all).map((note) => el("li", {}, text(note))),
      )
    : null;
// `.` says nothing to who reads it elsewhere.
const namedPlace = (place) => (place && place.name && place.name !== "." ? placeName(place) : null);
const placeName = (place) => text(place && place.name) || text(place && place.directory) || "a place without a name";

// ---- what stands above and beside the runs

function overview() {
  if (runs.length < 2) return;
  const rows = runs.map((run) => {
    const finding = run.finding || {};
    const name = placeName(run.place);
    if (!finding.speedup)
      return {
        name,
        className: "s-plain",
        missing: text(finding.sentence) || "no finding: too little was measured",
        lines: [text(finding.sentence) || "no finding: too little was measured"],
      };
    return {
      name,
      className: finding.speedup.verdict === "faster" ? "s-best" : "s-plain",
      value: finding.speedup.speedup,
      low: finding.speedup.low,
      high: finding.speedup.high,
      shown: `${times(finding.speedup.speedup)}${mark(finding.speedup)}`,
      lines: [`best: ${text(finding.best)}`, `against ${text(finding.naive)}: ${interval(finding.speedup)}`],
    };
  });
  if (!runs.some((run) => run.finding && run.finding.speedup)) {
    section(
      "overview",
      "All places at a glance",
      absent("In none of these places could a durable way be compared with the naive one."),
    );
    return;
  }
  section(
    "overview",
    "All places at a glance",
    grid(
      figure({
        kind: "overview",
        wide: true,
        title: "What the best durable way gains over the naive one, by place",
        command: text(data.command),
        how: "How many times as fast the best durable way is, with its 95% interval. The line at 1: no gain.",
        draw: (width) => rowsChart(width, rows, { dots: true, reference: 1, unit: times }),
        head: ["place", "best durable way", "against", "speedup", "95% from", "to", "verdict"],
        rows: () =>
          runs.map((run) => {
            const finding = run.finding || {};
            const relative = finding.speedup || {};
            return [
              placeName(run.place),
              text(finding.best) || "none found",
              text(finding.naive),
              times(relative.speedup),
              end(relative.low),
              end(relative.high),
              verdictWords(relative),
            ];
          }),
      }),
    ),
  );
}

function timelines() {
  const all = runs.flatMap((run) =>
    list(run.cells)
      .map(cellView)
      .filter((cell) => cell.bill && list(cell.bill.timeline).length)
      .map((cell) => ({ name: runs.length > 1 ? `${placeName(run.place)}: ${cell.name}` : cell.name, cell, run })),
  );
  if (!all.length) {
    if (runs.some((run) => list(run.cells).length)) {
      section(
        "timeline",
        "One commit, request by request",
        absent(
          `This result has no commits request by request: ${machine.trace_refused ? `the block layer could not be traced: ${machine.trace_refused}` : "they are recorded by `inkstone lab bill --timeline` and `inkstone lab filesystems --timeline`, as root"}.`,
        ),
      );
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
  const shown = () =>
    chosen.map((n) => {
      const timeline = all[n].cell.bill.timeline;
      return { name: all[n].name, commit: timeline[Math.min(number, timeline.length - 1)] };
    });
  const pick = (n) => (value) => {
    chosen[n] = value;
    card.repaint();
  };
  const names = all.map((one) => one.name);
  const kinds = [...KINDS.map(([className, kind]) => [className, kind]), ["k-flush", "flush"]].filter(([className]) =>
    all.some((one) =>
      one.cell.bill.timeline.some((commit) => list(commit.requests).some((request) => kindClass(request.what) === className)),
    ),
  );
  const card = figure({
    kind: "timeline",
    wide: true,
    title: "What the device does during one commit: two ways on one axis of time",
    command: text(data.command),
    how: "Each bar is a request, from the device's getting it to its completion, in the lane of its device. The commit begins at 0. Traced commits are a little slower than timed ones.",
    controls: [
      choice("Above", names, chosen[0], pick(0)),
      choice("Below", names, chosen[1], pick(1)),
      most > 1
        ? choice(
            "Which commit",
            [...Array(most).keys()].map((n) => `recorded commit ${n + 1}`),
            0,
            (value) => {
              number = value;
              card.repaint();
            },
          )
        : null,
    ],
    legend: key(kinds),
    draw: (width) => timelineChart(width, shown()),
    head: ["request", "device", "by", "issued after", "completed after", "bytes", "sector", "flags"],
    rows: () =>
      shown().flatMap(({ name, commit }) => [
        [`${name}, commit ${count(commit.number)}`, "", "", "0", `acknowledged after ${time(commit.total_ns)}`],
        ...list(commit.requests).map((request) => [
          request.what,
          request.device,
          request.who,
          time(request.issued_ns),
          finite(request.completed_ns) ? time(request.completed_ns) : "not seen",
          bytes(request.bytes),
          count(request.sector),
          request.flags,
        ]),
      ]),
  });
  section("timeline", "One commit, request by request", grid(card));
}

// ---- where it was measured

function placeWords(place) {
  if (!place) return "";
  const facts = [
    place.model && text(place.model).trim(),
    place.write_cache && `cache ${place.write_cache}`,
    finite(place.fua) || typeof place.fua === "boolean" ? (place.fua ? "FUA" : "no FUA") : null,
    typeof place.journal === "boolean" ? (place.journal ? "journal" : "no journal") : null,
    place.copy_on_write === "always" ? "copy on write" : null,
  ].filter(Boolean);
  const words = `${text(place.file_system) || "unknown file system"}${place.device ? ` on ${place.device}` : ""}${facts.length ? ` (${facts.join(", ")})` : ""}`;
  return place.host ? `${words}, over ${placeWords(place.host)}` : words;
}
const said = (value) =>
  value === null || value === undefined || value === ""
    ? "unknown"
    : value === true
      ? "yes"
      : value === false
        ? "no"
        : String(value);
function environment() {
  const places = [];
  for (const place of [...runs, ...list(data.experiments), ...list(data.fallocate), ...(data.aa ? [data.aa] : []), ...list(data.twins)]
    .map((one) => one.place)
    .filter(Boolean)) {
    if (!places.some((other) => JSON.stringify(other) === JSON.stringify(place))) places.push(place);
  }
  const harness = data.harness || {};
  const started =
    finite(data.started_unix_s) && data.started_unix_s > 0
      ? `${new Date(data.started_unix_s * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`
      : "unknown";
  const facts = [
    ["kernel", said(machine.kernel)],
    ["CPUs", `${said(machine.cpus)} x ${said(machine.cpu)}`],
    ["governor", said(machine.governor)],
    ["memory", finite(machine.memory_bytes) ? bytes(machine.memory_bytes) : "unknown"],
    ["root", said(machine.root)],
    ["tracing", machine.trace_refused ? `refused: ${machine.trace_refused}` : "available"],
    ["started", started],
    ["took", finite(data.elapsed_ns) ? time(data.elapsed_ns) : "unknown"],
    [
      "harness",
      finite(harness.commit_ns)
        ? `${time(harness.commit_ns)} a commit, ${time(harness.clock_ns)} a reading of the clock; every figure includes it`
        : "unknown",
    ],
    ["Inkstone", said(data.inkstone_version)],
  ];
  const PLACE = [
    ["directory", "directory"],
    ["file system", "file_system"],
    ["mount options", "mount_options"],
    ["journal", "journal"],
    ["copy on write", "copy_on_write"],
    ["device", "device"],
    ["model", "model"],
    ["rotational", "rotational"],
    ["write cache", "write_cache"],
    ["FUA", "fua"],
    ["scheduler", "scheduler"],
    ["O_DIRECT alignment", "direct_align_bytes"],
    ["WRITE_ZEROES", "write_zeroes"],
    ["loop backing", "loop_backing"],
  ];
  section(
    "environment",
    "Where this was measured",
    table(["machine", ""], facts, "The machine", true),
    places.length
      ? table(
          ["place", ...places.map(placeName)],
          [
            ...PLACE.map(([name, field]) => [name, ...places.map((place) => said(place[field]))]),
            ["below", ...places.map((place) => (place.host ? placeWords(place.host) : "nothing"))],
          ].filter((row) => row.slice(1).some((words) => words !== "unknown")),
          "The places",
          true,
        )
      : absent("No place was measured."),
  );
}

// ---- the page itself

disksSection();
claimsSection();
askedSection();
overview();
runs.forEach(runSection);
timelines();
scoresSection();
list(data.experiments)
  .filter((experiment) => !isScore(experiment))
  .forEach(experimentSection);
list(data.fallocate).forEach(atlasSection);
if (data.aa) pairsSection(data.aa);
list(data.twins).forEach((one, number) => pairsSection(one, `identical-${number}`));
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
  if (fold && !fold.open) {
    fold.open = true;
    target.scrollIntoView();
  }
}
window.addEventListener("hashchange", unfold);
unfold();
window.addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details.fold")) fold.open = true;
  paintAll();
});
window.addEventListener("scroll", hideTip, { passive: true });
document.addEventListener("pointerdown", (event) => {
  if (!event.target.closest(".says")) hideTip();
});
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.replaceWith(copyButton(button.previousElementSibling.textContent));
}

const toggle = document.getElementById("theme");
toggle.hidden = false;
const dark = () =>
  document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
const nameToggle = () => {
  toggle.textContent = dark() ? "Light" : "Dark";
  toggle.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
};
toggle.addEventListener("click", () => {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  nameToggle();
});
nameToggle();
