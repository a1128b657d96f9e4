// Looks at reports in a real browser: each chart drawn, nothing overflowing, nothing loaded, values on hover and in tables.
// Owns: what a reader must be able to rely on. May not touch: how results come about (.ci/report measures them).
//
// INKSTONE is the command, RESULTS a directory with run.json, fallocate.json, aa.json and text.json, CHROMIUM the browser.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";
import { claims, disks, expected, experiments, halfEmpty, nasty, nothing, places, scores, traced } from "./samples.mjs";

const { INKSTONE, RESULTS, SHOTS } = process.env;
assert.ok(INKSTONE && RESULTS, "INKSTONE and RESULTS must be set: run .ci/report");
if (SHOTS) mkdirSync(SHOTS, { recursive: true });
const QUIET = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

const measured = (name) => JSON.parse(readFileSync(join(RESULTS, `${name}.json`), "utf8"));
const run = traced(measured("run"));
const pages = new Map();
for (const [name, result] of Object.entries({
  run,
  fallocate: measured("fallocate"),
  aa: measured("aa"),
  half: halfEmpty(run),
  nothing: nothing(),
  nasty: nasty(run),
  places: places(run),
  experiments: experiments(run),
  text: measured("text"),
  disks: disks(run),
  claims: claims(run),
  nastyClaims: nasty(claims(run)),
  scores: scores(run),
})) {
  const json = join(RESULTS, `${name}-drawn.json`);
  writeFileSync(json, JSON.stringify(result));
  const html = join(RESULTS, `${name}.html`);
  execFileSync(INKSTONE, ["lab", "report", json, "-o", html]);
  pages.set(name, { html, result });
}

let browser;
before(async () => {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: QUIET });
});
after(async () => {
  await browser?.close();
});

// Opens a report and fails on anything that it complains of or asks the network for.
async function open(name, { width = 1280, scheme = "light", ...more } = {}) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme, ...more });
  const page = await context.newPage();
  const wrong = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) wrong.push(message.text());
  });
  page.on("pageerror", (error) => wrong.push(String(error.stack || error)));
  page.on("dialog", (dialog) => {
    wrong.push("a dialog");
    dialog.dismiss();
  });
  const url = pathToFileURL(pages.get(name).html).href;
  page.on("request", (request) => {
    if (request.url() !== url && !request.url().startsWith("data:")) wrong.push(`asked for ${request.url()}`);
  });
  await page.goto(url);
  return {
    page,
    wrong,
    done: async () => {
      assert.deepEqual(wrong, [], name);
      await context.close();
    },
  };
}

const settled = (page) =>
  page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(resolve)))));

const unfold = (page) =>
  page.evaluate(async () => {
    for (const fold of document.querySelectorAll("details")) fold.open = true;
    await new Promise((resolve) => setTimeout(resolve, 50));
  });

// What a chart must not be: empty, with numbers that are none, or with text outside of it.
const inspect = (page) =>
  page.evaluate(() => {
    const faults = [];
    const kinds = {};
    const view = document.documentElement.clientWidth;
    for (const figure of document.querySelectorAll("figure")) {
      const {
        id,
        dataset: { chart },
      } = figure;
      kinds[chart] = (kinds[chart] || 0) + 1;
      const svg = figure.querySelector(".plot > svg");
      if (!svg) {
        faults.push(`${id} ${chart}: no svg`);
        continue;
      }
      if (!svg.querySelector(".mark")) faults.push(`${id} ${chart}: no marks`);
      if (/NaN|undefined|Infinity|\[object/.test(svg.outerHTML))
        faults.push(`${id} ${chart}: ${/.{30}(NaN|undefined|Infinity|\[object).{10}/.exec(svg.outerHTML)?.[0]}`);
      if (!svg.querySelector("[tabindex='0']")) faults.push(`${id} ${chart}: cannot be reached by keyboard`);
      if (!svg.getAttribute("aria-label") || !figure.querySelector("h3").textContent.trim())
        faults.push(`${id} ${chart}: no title`);
      if (!figure.querySelector("table tbody tr")) faults.push(`${id} ${chart}: no exact values`);
      const box = svg.getBoundingClientRect();
      const texts = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
      texts.forEach(([words, a], n) => {
        const over = texts
          .slice(n + 1)
          .find(([, b]) => a.left < b.right - 3 && b.left < a.right - 3 && a.top < b.bottom - 4 && b.top < a.bottom - 4);
        if (over) faults.push(`${id} ${chart}: "${words}" and "${over[0]}" lie on each other`);
      });
      for (const text of svg.querySelectorAll("text")) {
        const { left, right } = text.getBoundingClientRect();
        if (left < box.left - 3 || right > box.right + 3)
          faults.push(
            `${id} ${chart}: "${text.textContent}" leaves the chart (${Math.round(left - box.left)}..${Math.round(right - box.left)} of ${Math.round(box.width)})`,
          );
      }
    }
    if (document.documentElement.scrollWidth > view) {
      const wide = [...document.body.querySelectorAll("*")].filter(
        (node) => !node.closest(".scroll") && node.getBoundingClientRect().right > view + 1,
      );
      faults.push(`wider than the window: ${wide.slice(0, 3).map((node) => node.outerHTML.slice(0, 120))}`);
    }
    if (/\b(NaN|undefined|\[object)/.test(document.body.innerText)) faults.push("NaN or undefined in the text");
    return { faults, kinds };
  });

// From dark colours, with a part folded: paper is white, has everything unfolded, and none of the controls.
async function onPaper(page) {
  await page.evaluate(() => {
    const fold = document.querySelector("details.fold");
    if (fold) fold.open = false;
  });
  await page.setViewportSize({ width: 794, height: 1100 });
  await page.emulateMedia({ colorScheme: "dark" });
  const pdf = await page.pdf({ format: "A4" });
  assert.ok(pdf.length > 10_000);
  await page.emulateMedia({ media: "print" });
  const seen = await page.evaluate(() => ({
    folded: document.querySelectorAll("details.fold:not([open])").length,
    ground: getComputedStyle(document.body).backgroundColor,
    controls: [...document.querySelectorAll("header button, .controls select, .again button")].filter(
      (node) => node.getClientRects().length,
    ).length,
  }));
  assert.deepEqual(seen, { folded: 0, ground: "rgb(255, 255, 255)", controls: 0 });
  assert.deepEqual((await inspect(page)).faults, [], "on paper");
}

for (const name of pages.keys()) {
  test(`${name}: every chart drawn, nothing overflowing, wide and narrow, light and dark, on paper`, async () => {
    const { page, done } = await open(name);
    for (const [width, scheme] of [
      [1280, "light"],
      [1280, "dark"],
      [390, "dark"],
      [390, "light"],
    ]) {
      await page.emulateMedia({ colorScheme: scheme });
      await page.setViewportSize({ width, height: 900 });
      await settled(page);
      if (SHOTS) await page.screenshot({ path: join(SHOTS, `${name}-${width}-${scheme}.png`), fullPage: true });
      await unfold(page);
      const { faults, kinds } = await inspect(page);
      assert.deepEqual(faults, [], `${width}, ${scheme}`);
      assert.deepEqual(kinds, expected(pages.get(name).result));
      assert.ok((await page.locator(".lead").first().innerText()).length > 10, "no answer");
    }
    await onPaper(page);
    await done();
  });
  test(`${name} is at most 1 MiB`, () => assert.ok(statSync(pages.get(name).html).size <= 1 << 20));
}

test("values on hover and by keyboard, in every kind of chart", async () => {
  for (const name of ["run", "experiments", "fallocate", "aa", "places", "text", "disks", "claims", "scores"]) {
    const { page, done } = await open(name);
    for (const kind of new Set(Object.keys(expected(pages.get(name).result)))) {
      const mark = page.locator(`figure[data-chart="${kind}"] svg .says`).first();
      await mark.scrollIntoViewIfNeeded();
      await settled(page); // scrolling takes the tooltip away
      const said = (await mark.getAttribute("aria-label")).split("; ");
      const box = await mark.boundingBox();
      await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
      await page
        .waitForSelector("#tip:not([hidden])", { timeout: 2000 })
        .catch(() => assert.fail(`${name} ${kind}: nothing on hover`));
      assert.match(await page.locator("#tip").innerText(), /\d/, `${name} ${kind}: no figure on hover`);
      await page.mouse.move(1, 1);
      await page.locator(`figure[data-chart="${kind}"] svg [tabindex='0']`).first().focus();
      assert.ok((await page.locator("#tip").innerText()).startsWith(said[0].slice(0, 12)), `${name} ${kind}: nothing on focus`);
      const several = (await page.locator(`figure[data-chart="${kind}"] svg`).first().locator(".says").count()) > 1;
      if (several) {
        await page.keyboard.press("ArrowDown");
        const now = await page.evaluate(() => document.activeElement.getAttribute("aria-label"));
        assert.notEqual(now, said.join("; "), `${name} ${kind}: the arrow keys do not move`);
      }
      await page.keyboard.press("Escape");
    }
    await done();
  }
});

test("the table under a chart has the values of the JSON", async () => {
  const { page, done } = await open("run");
  await unfold(page);
  const rows = await page
    .locator('figure[data-chart="distribution"] tbody tr')
    .evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent)));
  const cells = run.runs[0].cells.filter((cell) => cell.outcome.kind === "measured");
  assert.equal(rows.length, cells.length);
  rows.forEach((row, n) => {
    assert.equal(row[0], cells[n].name);
    assert.equal(row[1], cells[n].outcome.commit.count.toLocaleString("en-US"));
    const [value, unit] = row[6].split(" ");
    const shown = Number(value.replaceAll(",", "")) * { ns: 1, µs: 1e3, ms: 1e6, s: 1e9 }[unit];
    assert.ok(Math.abs(shown / cells[n].outcome.commit.p99_ns - 1) < 0.01, `p99 ${row[6]} of ${cells[n].outcome.commit.p99_ns}`);
  });
  await done();
});

test("the toggle changes the colours, and changes them back", async () => {
  for (const scheme of ["light", "dark"]) {
    const { page, done } = await open("run", { scheme });
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const first = await ground();
    await page.click("#theme");
    assert.notEqual(await ground(), first);
    await page.click("#theme");
    assert.equal(await ground(), first);
    await done();
  }
});

test("two ways can be chosen for the timeline, and curves picked", async () => {
  const { page, done } = await open("run");
  const chart = page.locator('figure[data-chart="timeline"]');
  const content = () => chart.locator("svg").evaluate((svg) => svg.outerHTML);
  const choose = async (n) => {
    const select = chart.locator("select").nth(n);
    await select.selectOption(String((Number(await select.inputValue()) + 1) % count));
  };
  const one = await content();
  const count = await chart.locator("select").first().locator("option").count();
  assert.equal(count, run.runs[0].cells.filter((cell) => cell.outcome.bill?.timeline?.length).length);
  await choose(1);
  const two = await content();
  assert.notEqual(two, one);
  await choose(0);
  assert.notEqual(await content(), two);
  const curves = page.locator('figure[data-chart="distribution"] .curve:not(.context)');
  const strong = await curves.count();
  await page.locator('.chip[aria-pressed="false"]').first().click();
  assert.equal(await curves.count(), strong + 1);
  await done();
});

test("a failed, half-empty run says what is missing and why", async () => {
  const { page, done } = await open("half");
  const text = await page.evaluate(() => document.body.innerText);
  for (const said of [
    "stopped early",
    "could not be measured",
    "EOPNOTSUPP on purpose",
    "had not run",
    "No bill: the block layer could not be traced: tracing needs root",
    "No latency over time",
    "no io_uring here",
  ]) {
    assert.ok(text.includes(said), said);
  }
  await done();
});

test("a page is called what it holds, and says what its result answers", async () => {
  for (const [name, title, said] of [
    ["run", /^Durable writes on /, []],
    ["text", /^A text log on /, ["Mutex<BufWriter>", "LogWriter", "p99.9 of a write"]],
    ["experiments", /^2 experiments on /, []],
    ["disks", /^Which disk is best/, ["/mnt/nvme and /mnt/ssd tie", "126 µs", "not usable for a log", "no durable way could be measured there"]],
    ["claims", /^Claims, checked/, ["Of 7 claims", "overwrite-twice", "0.0039", "it needs root", "0.1 or less"]],
    [
      "scores",
      /^The log's own choice of a way to write in 3 places/,
      ["within 10% of the best durable way in 1 of 2 places", "it is the best", "mkfs.xfs is not installed"],
    ],
  ]) {
    const { page, done } = await open(name);
    await unfold(page);
    assert.match(await page.title(), title);
    const text = await page.evaluate(() => document.body.innerText);
    const drawn = (await page.locator("svg text").allTextContents()).join("\n");
    for (const words of said) assert.ok(`${text}\n${drawn}`.includes(words), `${name}: ${words}`);
    await done();
  }
});

test("the tables of disks, claims and scores have the values of the JSON", async () => {
  const cells = async (page, selector) =>
    page.locator(selector).evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent)));
  for (const [name, selector, wanted] of [
    ["disks", 'figure[data-chart="disks"] tbody tr', ["/mnt/ssd", "vda", "129 µs", "reuse direct rwf-dsync", "0.98× [0.88 to 1.13] tie", ""]],
    ["claims", 'figure[data-chart="claims"] tbody tr', ["posix-fallocate-slow", "0.0039×", "0.002", "0.0051", "1.03 or more", "refuted", "new fsync : reuse fdatasync"]],
    ["scores", 'figure[data-chart="score"] tbody tr', ["ext4, direct loop: tuned", "reuse fdatasync", "reuse direct o-dsync", "0.98×", "0.95", "1.02", "6,900", "7,000"]],
  ]) {
    const { page, done } = await open(name);
    await unfold(page);
    const rows = await cells(page, selector);
    assert.ok(
      rows.some((row) => JSON.stringify(row) === JSON.stringify(wanted)),
      `${name}: ${JSON.stringify(rows)}`,
    );
    await done();
  }
});

test("names are text, never markup", async () => {
  for (const name of ["nasty", "nastyClaims"]) {
    const { page, done } = await open(name);
    assert.equal(await page.locator("img").count(), 0);
    assert.ok((await page.title()) !== "taken");
    assert.ok((await page.evaluate(() => document.body.innerText)).includes("<img src=x onerror="));
    await done();
  }
});

test("without scripts the answer and the warnings can be read", async () => {
  const { page, done } = await open("run", { javaScriptEnabled: false });
  const text = await page.locator("body").innerText();
  assert.ok(text.includes("drawn by a script inside this file"));
  assert.ok((await page.locator(".lead").first().innerText()).length > 10);
  await done();
});
