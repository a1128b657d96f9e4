// Looks at reports in a real browser: each chart drawn, nothing overflowing, nothing loaded, values
// under the pointer, and the command's tables below.
// Owns: what a reader must be able to rely on. May not touch: how results come about (.ci/report
// measures them).
//
// INKSTONE is the command, RESULTS a directory with run.json, fallocate.json and read.json,
// CHROMIUM the browser, SHOTS a directory for screenshots.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";
import { disks, experiments, halfEmpty, nasty, places, statements, traced } from "./samples.mjs";

const { INKSTONE, RESULTS, SHOTS } = process.env;
assert.ok(INKSTONE && RESULTS, "INKSTONE and RESULTS must be set: run .ci/report");
if (SHOTS) mkdirSync(SHOTS, { recursive: true });

const measured = (name) => JSON.parse(readFileSync(join(RESULTS, `${name}.json`), "utf8"));
const run = traced(measured("run"));
const OF_A_RUN = ["bill", "speedup", "time"];
// The result of each page, and the kinds of charts that it must have.
const pages = {
  run: [run, OF_A_RUN],
  fallocate: [measured("fallocate"), null],
  read: [measured("read"), null],
  half: [halfEmpty(run), ["time"]],
  nothing: [{ ...run, tables: [] }, []],
  nasty: [nasty(run), OF_A_RUN],
  places: [places(run), OF_A_RUN],
  experiments: [experiments(run), ["rates", "speedup"]],
  disks: [disks(run), ["disks", ...OF_A_RUN]],
  statements: [statements(run), OF_A_RUN],
  nastyStatements: [nasty(statements(run)), null],
};
const fileOf = (name) => join(RESULTS, `${name}.html`);
for (const [name, [result]] of Object.entries(pages)) {
  // Spoiled names must not spoil the version.
  writeFileSync(join(RESULTS, `${name}-drawn.json`), JSON.stringify(result));
  const drawn = join(RESULTS, `${name}-drawn.json`);
  execFileSync(INKSTONE, ["lab", "report", drawn, "-o", fileOf(name)]);
}

let browser;
before(async () => {
  const quiet = ["--disable-gpu", "--disable-background-networking", "--no-first-run"];
  const executablePath = process.env.CHROMIUM || "/usr/bin/chromium";
  browser = await chromium.launch({ executablePath, args: ["--no-sandbox", ...quiet] });
});
after(() => browser?.close());

// Looks at a page, and fails on anything that it complains of or asks the network for.
async function on(name, look, more) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...more });
  const page = await context.newPage();
  const wrong = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) wrong.push(message.text());
  });
  page.on("pageerror", (error) => wrong.push(String(error.stack || error)));
  const url = pathToFileURL(fileOf(name)).href;
  page.on("request", (request) => {
    const asked = request.url();
    if (asked !== url && !asked.startsWith("data:")) wrong.push(`asked for ${asked}`);
  });
  await page.goto(url);
  await look(page);
  assert.deepEqual(wrong, [], name);
  await context.close();
}
const settled = (page) =>
  page.evaluate(() => new Promise((resolve) =>
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(resolve)))));
const textOf = (page) => page.evaluate(() => document.body.innerText);

// What a chart must not be: empty, with numbers that are none, with text outside of it or over
// other text.
const inspect = (page) =>
  page.evaluate(() => {
    const faults = [];
    const kinds = new Set();
    for (const figure of document.querySelectorAll("figure")) {
      const { chart } = figure.dataset;
      const fault = (words) => faults.push(`${figure.id} ${chart}: ${words}`);
      kinds.add(chart);
      const svg = figure.querySelector(".plot > svg");
      if (!svg?.querySelector(".mark")) {
        fault("no marks");
        continue;
      }
      const wrong = /.{30}(NaN|undefined|Infinity|\[object).{10}/.exec(svg.outerHTML);
      if (wrong) fault(wrong[0]);
      const said = [...svg.querySelectorAll(".says > title")].map((title) => title.textContent);
      if (!said.some((words) => /\d/.test(words))) fault("no figures under the pointer");
      if (!svg.getAttribute("aria-label")) fault("no title");
      const box = svg.getBoundingClientRect();
      const texts = [...svg.querySelectorAll("text")].map((text) =>
        [text.textContent, text.getBoundingClientRect()]);
      texts.forEach(([words, a], n) => {
        const over = texts
          .slice(n + 1)
          .find(([, b]) => a.left < b.right - 3 && b.left < a.right - 3
            && a.top < b.bottom - 4 && b.top < a.bottom - 4);
        if (over) fault(`"${words}" and "${over[0]}" lie on each other`);
        if (a.left < box.left - 3 || a.right > box.right + 3) fault(`"${words}" leaves the chart`);
      });
    }
    const view = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth > view) {
      const isWide = (node) =>
        !node.closest(".scroll") && node.getBoundingClientRect().right > view + 1;
      const wide = [...document.body.querySelectorAll("*")].filter(isWide);
      const first = wide.slice(0, 3).map((node) => node.outerHTML.slice(0, 120));
      faults.push(`wider than the window: ${first}`);
    }
    const isUnsaid = /\b(NaN|undefined|\[object)/.test(document.body.innerText);
    if (isUnsaid) faults.push("NaN or undefined in the text");
    return { faults, kinds: [...kinds].sort() };
  });

for (const [name, [, kinds]] of Object.entries(pages)) {
  test(`${name}: all charts drawn, nothing overflowing, wide, narrow, light, dark, on paper`, () =>
    on(name, async (page) => {
      const looks = [[1280, "light"], [1280, "dark"], [390, "dark"], [390, "light"]];
      for (const [width, colorScheme] of looks) {
        await page.emulateMedia({ colorScheme });
        await page.setViewportSize({ width, height: 900 });
        await settled(page);
        const path = SHOTS && join(SHOTS, `${name}-${width}-${colorScheme}.png`);
        if (path) await page.screenshot({ path, fullPage: true });
        const seen = await inspect(page);
        assert.deepEqual(seen.faults, [], `${width}, ${colorScheme}`);
        if (kinds) assert.deepEqual(seen.kinds, [...kinds].sort());
        assert.ok((await page.locator(".lead").first().innerText()).length > 10, "no answer");
      }
      await page.setViewportSize({ width: 794, height: 1100 });
      await page.emulateMedia({ media: "print", colorScheme: "dark" });
      await settled(page);
      const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      assert.equal(ground, "rgb(255, 255, 255)", "paper is white");
      assert.deepEqual((await inspect(page)).faults, [], "on paper");
      assert.ok(statSync(fileOf(name)).size <= 1 << 20, "more than 1 MiB");
    }));
}

test("the tables below the charts have every way", () =>
  on("run", async (page) => {
    const words = await page.locator("pre").innerText();
    for (const { name } of run.tables[0].ways) assert.ok(words.includes(name), name);
  }));

test("a page says what its result answers, and what is missing and why", async () => {
  for (const [name, title, said] of [
    ["run", /./, []],
    ["experiments", /./, ["residency could not be proved"]],
    ["disks", /^Which disk is best/, ["/mnt/nvme and /mnt/ssd tie", "126 µs",
      "no durable way could be measured there"]],
    ["statements", /^Statements, checked/, ["Of 6 statements", "overwrite-twice",
      "0.004 [0.002..0.005] times", "it needs root", "0.1 or less"]],
    ["half", /./, ["stopped early", "EOPNOTSUPP on purpose",
      "not run: the run ended before", "no io_uring here",
      "No bill: the block layer could not be traced: tracing needs root"]],
    ["nothing", /./, ["Nothing was measured."]],
  ]) {
    await on(name, async (page) => {
      assert.match(await page.title(), title);
      const drawn = await page.locator("svg text").allTextContents();
      const words = [await textOf(page), ...drawn].join("\n");
      for (const wanted of said) assert.ok(words.includes(wanted), `${name}: ${wanted}`);
    });
  }
});

test("names are text, never markup", async () => {
  for (const name of ["nasty", "nastyStatements"]) {
    await on(name, async (page) => {
      assert.equal(await page.locator("img").count(), 0);
      assert.ok((await page.title()) !== "taken");
      assert.ok((await textOf(page)).includes("<img src=x onerror="));
    });
  }
});

test("without scripts the answer, the warnings and the tables can be read", () =>
  on("run", async (page) => {
    const body = await page.locator("body").innerText();
    assert.ok(body.includes("drawn by a script inside this file"));
    assert.ok((await page.locator(".lead").first().innerText()).length > 10);
    assert.ok((await page.locator("pre").innerText()).includes(run.tables[0].ways[0].name));
  }, { javaScriptEnabled: false }));
