// What a result answers beside its runs: which disk, which claims hold here, how near the log's own choice comes to the best.
"use strict";

// Claims and questions without an answer are grey, as everywhere.
const ANSWERS = { confirmed: "s-best", refuted: "s-base", "cannot-tell": "s-plain", "not-run": "s-plain" };
const answered = (verdict) => text(verdict).replace("-", " ") || "not run";

// ---- several disks: which should carry the log

function disksSection() {
  const disks = list(data.disks);
  if (!disks.length) return;
  const timed = disks.filter((disk) => finite(disk.per_commit_ns));
  const usable = timed.filter((disk) => !disk.refused);
  const against = (disk) => (disk.relative ? `${interval(disk.relative)}${mark(disk.relative)}` : "");
  const rows = disks.map((disk) => ({
    name: text(disk.directory),
    value: disk.per_commit_ns,
    className: disk === usable[0] ? "s-best" : "s-plain",
    weak: Boolean(disk.refused),
    missing: text(disk.refused),
    shown: `${time(disk.per_commit_ns)}${disk.refused ? ", not usable for a log" : ""}`,
    lines: [
      finite(disk.per_commit_ns) ? `${time(disk.per_commit_ns)} per durable commit` : null,
      disk.best ? `its best durable way: ${disk.best}` : null,
      disk.relative ? `speed against the best disk: ${against(disk)}` : null,
      disk.refused ? `not usable for a log: ${disk.refused}` : null,
    ],
  }));
  const best = usable[0];
  if (!timed.length) {
    section("disks", "Which disk is best for the log", absent(`No disk could be measured: ${text(data.sentence)}`));
    return;
  }
  section(
    "disks",
    "Which disk is best for the log",
    grid(figure({
      kind: "disks",
      wide: true,
      command: text(data.command),
      title: best
        ? `\`${text(best.directory)}\` makes a commit durable in ${time(best.per_commit_ns)}${usable.length > 1 ? ", the shortest time of all usable disks" : "; it is the only usable disk"}`
        : "None of these can carry a log",
      how: "The median time of a durable commit by each disk's fastest durable way; shorter is better. Hatched: nothing is durable there, whatever its speed. The table shows which disks tie.",
      draw: (width) => rowsChart(width, rows, { unit: time }),
      head: ["directory", "device", "time per commit", "best durable way", "speed against the best, 95%", "why not"],
      rows: () =>
        disks.map((disk) => [
          text(disk.directory),
          text(disk.device) || "none",
          time(disk.per_commit_ns),
          text(disk.best) || "none found",
          disk === best ? "the best" : against(disk),
          text(disk.refused),
        ]),
    })),
  );
}

// ---- claims: what articles and threads say, checked here

// `1.5 to 3`, `1.03 or more`, `0.1 or less`, `0`: the band as numbers.
function bandOf(words) {
  const numbers = (text(words).match(/\d+(\.\d+)?/g) || []).map(Number);
  if (!numbers.length) return null;
  if (/or more/.test(words)) return { from: numbers[0], to: Infinity };
  if (/or less/.test(words)) return { from: 0, to: numbers[0] };
  return { from: numbers[0], to: numbers[numbers.length - 1] };
}
// Far below 1 the digits that count are further right.
const small = (value) => (value > 0 && value < 0.0995 ? String(Number(value.toPrecision(2))) : digits(value));
const factor = (value) => `${small(value)}×`;
const seenWords = ({ value, low, high, unit }) =>
  low === high ? `${small(value)} ${text(unit)}` : `${small(value)} [${small(low)} to ${small(high)}] ${text(unit)}`;

function claimsSection() {
  const claims = list(data.claims);
  if (!claims.length) return;
  const of = (verdict) => claims.filter((claim) => claim.verdict === verdict);
  const timed = claims.filter((claim) => claim.found && claim.found.unit === "times" && claim.found.low > 0);
  const rows = timed.map(({ id, found, band, statement, source, verdict }) => ({
    name: text(id),
    value: found.value,
    low: found.low,
    high: found.high,
    band: bandOf(band),
    className: ANSWERS[verdict] || "s-plain",
    shown: `${small(found.value)}, ${answered(verdict)}`,
    lines: [text(statement), `${seenWords(found)}; it holds at ${text(band)}`, answered(verdict), `source: ${text(source)}`],
  }));
  const here = (claim) => (claim.found ? seenWords(claim.found) : text(claim.reason));
  const counted = claims.filter((claim) => !timed.includes(claim));
  const shown = (verdict, words) => (of(verdict).length ? `${of(verdict).length} ${words}` : null);
  const words = [
    shown("confirmed", "confirmed"),
    shown("refuted", "refuted"),
    shown("cannot-tell", "of which the lab cannot tell"),
    shown("not-run", "not run"),
  ];
  section(
    "claims",
    "What articles and threads say, checked here",
    el("p", { class: "facts" }, `${plural(claims.length, "claim")}: ${words.filter(Boolean).join(", ")}.`),
    rows.length
      ? grid(figure({
          kind: "claims",
          wide: true,
          command: text(data.command),
          title: `Claims about ratios: ${timed.filter((claim) => claim.verdict === "confirmed").length} of ${timed.length} are confirmed on this disk`,
          how: "The dot is how many times as fast (or as much), here, with its 95% interval; the shaded band is where the claim holds. Confirmed: the whole interval is in the band. Refuted: none of it is. Cannot tell: part of it is.",
          legend: key([
            ["s-best", "confirmed"],
            ["s-base", "refuted"],
            ["s-plain", "cannot tell"],
          ]),
          draw: (width) => rowsChart(width, rows, { dots: true, reference: 1, unit: factor }),
          head: ["claim", "seen here", "95% from", "to", "holds at", "answer", "of"],
          rows: () =>
            timed.map(({ id, found, band, verdict }) => [
              text(id),
              factor(found.value),
              small(found.low),
              small(found.high),
              text(band),
              answered(verdict),
              text(found.of),
            ]),
        }))
      : null,
    el("h3", { class: "above" }, "Every claim: statement, source, and what was seen here"),
    el("div", { class: "claims" }, table(
      ["claim", "statement", "answer", "seen here", "holds at", "source"],
      [...counted, ...timed].map((claim) => [
        text(claim.id),
        text(claim.statement),
        answered(claim.verdict),
        here(claim),
        text(claim.band),
        text(claim.source),
      ]),
      "Every claim",
      true,
    )),
  );
}

// ---- scores: the rule's and the tuned choice beside the best durable way, head to head

const isScore = (experiment) => experiment.name === "score";
const wayOf = (row) => text(row.name).replace(/^[a-z]+: /, "");

function scoresSection() {
  const scores = list(data.experiments).filter(isScore);
  if (!scores.length) return;
  const several = scores.length > 1;
  const views = scores.flatMap((experiment) => {
    const rows = list(experiment.rows).map(experimentRow);
    const best = rows.find((row) => row.series === "best");
    const choices = rows.filter((row) => row !== best);
    return choices.map((row) => {
      const same = best && wayOf(best) === wayOf(row) && !row.missing;
      const { speedup, low, high } = same ? { speedup: 1 } : row.relative || {};
      const missing = row.missing || (finite(speedup) ? null : "too few rounds to compare");
      const role = row.series || row.name;
      return { experiment, row, best, role, same, missing, value: speedup, low, high };
    });
  });
  const said = (view) => (view.same ? "it is the best" : interval({ speedup: view.value, low: view.low, high: view.high }));
  const named = (view) => (several ? `${placeName(view.experiment.place)}: ${view.role}` : view.role);
  const rows = views.map((view) => ({
    name: named(view),
    value: view.missing ? null : view.value,
    low: view.low,
    high: view.high,
    missing: view.missing,
    // Near enough.
    band: { from: view.role === "tuned" ? 1 / 1.1 : 1 / 1.2, to: Infinity },
    className: view.role === "tuned" ? "s-best" : "s1",
    shown: view.missing ? "" : said(view),
    lines: view.missing
      ? [view.missing]
      : [`its way: ${wayOf(view.row)}`, `the best: ${wayOf(view.best)}`, said(view), `${rate(view.row.value, text(view.experiment.unit))}`],
  }));
  const near = (role, least) => views.filter((view) => view.role === role && !view.missing && view.value >= least).length;
  const all = (role) => views.filter((view) => view.role === role && !view.missing).length;
  const any = views.some((view) => !view.missing);
  const lone = (role) => {
    const view = views.find((one) => one.role === role && !one.missing);
    if (!view) return "could not be scored";
    return view.same ? "is the best durable way" : `is ${times(view.value)} as fast as the best durable way`;
  };
  // The finding of a lone experiment stands at the head of the page.
  const alone = several || (!runs.length && list(data.experiments).length === 1);
  const title = several
    ? `The tuned choice is within 10% of the best durable way in ${near("tuned", 1 / 1.1)} of ${plural(all("tuned"), "place")}, the rule within 20% in ${near("rule", 1 / 1.2)} of ${all("rule")}`
    : `The rule's way ${lone("rule")}, the tuned one ${lone("tuned")}`;
  section(
    "scores",
    "How near the log's own choice comes to the best",
    alone ? null : el("p", { class: "finding" }, marked((scores[0].finding || {}).sentence)),
    any
      ? grid(figure({
          kind: "score",
          wide: true,
          command: scores.length === list(data.experiments).length ? text(data.command) : text(scores[0].command),
          title,
          how: "The best durable way was found in a run of all ways, then ran again head to head with both choices; only that second run counts. At 1 a choice is as fast as the best, further right is faster; with the 95% interval. Shaded: near enough, which is within 20% for the rule and within 10% for the tuned choice.",
          legend: key([
            ["s1", "by rule, without measuring"],
            ["s-best", "tuned, in two seconds"],
          ]),
          draw: (width) => rowsChart(width, rows, { dots: true, reference: 1, unit: times }),
          head: ["choice", "its way", "the best durable way", "speed against the best", "95% from", "to", "commits/s", "the best's"],
          rows: () =>
            views.map((view) =>
              view.missing
                ? [named(view), wayOf(view.row), "", view.missing]
                : [
                    named(view),
                    wayOf(view.row),
                    wayOf(view.best),
                    view.same ? "it is the best" : times(view.value),
                    view.same ? "" : end(view.low),
                    view.same ? "" : end(view.high),
                    count(Math.round(view.row.value)),
                    count(Math.round(view.best.value)),
                  ],
            ),
        }))
      : absent(`Nothing could be scored: ${views.map((view) => view.missing).join("; ")}.`),
  );
}

// ---- questions about two ways: yes, no, or cannot tell

function askedSection() {
  const asked = list(data.asked);
  if (!asked.length) return;
  const words = { yes: "yes", no: "no" };
  const rows = asked.map(({ question, place, answer, relative, reason }) => [
    text(question),
    text(place),
    words[answer] || "cannot tell",
    relative ? interval(relative) : "",
    text(reason),
  ]);
  section(
    "asked",
    "Questions and answers",
    el("p", { class: "facts" }, "Yes and no: the whole 95% interval says so, widened for all questions of a place; an effect below 1.1 times is a no too."),
    table(["question", "place", "answer", "times, 95%", "why there is no answer"], rows, "The answers", true),
  );
}
