// The chat page in a real browser: `node tools/browser/check.mjs [URL [MODEL]]`. Without an address the page's own server is
// a stand-in whose answers are known; with one the same reader talks to a running `hf2q serve`.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { startStandIn } from "./stand-in.mjs";

// Packages lie where npm was run: in the working folder or in NODE_PATH.
const need = createRequire(process.env.HF2Q_BROWSER_PACKAGES ? `${process.env.HF2Q_BROWSER_PACKAGES}/` : `${process.cwd()}/`);
const { chromium } = need("playwright-core");
const axe = readFileSync(need.resolve("axe-core/axe.min.js"), "utf8");
const executablePath = process.env.CHROMIUM ?? "/usr/lib/chromium/chromium";
const shots = process.env.SHOTS;


const [, , address, model] = process.argv;
const PATIENCE = address ? 120_000 : 30_000;
const LONG = address ? "Write a very long story about a ship, with many chapters." : "slow";
const problems = [];
let browser;

/** A browser of its own, whose requests and complaints are noted. */
async function openReader(url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const origin = new URL(url).origin;
  page.on("request", (r) => { if (!r.url().startsWith(origin) && !/^(data|blob):/.test(r.url())) problems.push(`asked ${r.url()}`); });
  page.on("pageerror", (e) => problems.push(`script failed: ${e.stack}`));
  page.on("console", (m) => {
    // That a request was refused is said by the browser too.
    if (["error", "warning"].includes(m.type()) && !/status of (401|429|503)|ERR_INCOMPLETE|ERR_CONNECTION|ERR_EMPTY/.test(m.text())) problems.push(`console: ${m.text()}`);
  });
  page.on("dialog", (d) => { problems.push(`dialog: ${d.message()}`); d.dismiss(); });
  // A small model may go on for long.
  if (address) await page.addInitScript(() => { localStorage["hf2q-settings"] ??= '{"max_tokens":"200"}'; });
  await page.goto(url);
  await page.waitForFunction(() => document.querySelector("#model option")?.value || document.querySelector("#key[open]"));
  return page;
}

const answers = (page) => page.locator("article.assistant");
const idle = (page) => page.waitForFunction(() => document.querySelector("#stop").hidden && ![...document.querySelectorAll("article")].some((a) => a.ariaBusy === "true"));

async function say(page, text) {
  const before = await page.locator("article").count();
  await page.fill("#prompt", text);
  await page.press("#prompt", "Enter");
  await page.waitForFunction((n) => document.querySelectorAll("article").length >= n + 2, before);
  await idle(page);
}

/** Has something to look at: of a model's answer the beginning. */
async function fill(page) {
  if (!address) return say(page, "rich");
  await page.fill("#prompt", "Show me a list, a table and some code.");
  await page.press("#prompt", "Enter");
  await page.waitForFunction(() => document.querySelector("article.assistant > .body")?.innerText.length > 200 || document.querySelector("#stop").hidden);
  await page.keyboard.press("Escape");
  return idle(page);
}

const lastText = (page) => answers(page).last().locator(":scope > .body").innerText();

async function accessible(page, where) {
  const found = await page.context().newCDPSession(page).then(async (session) => {
    // The policy lets no foreign script in; the debugger may.
    await session.send("Runtime.evaluate", { expression: axe });
    const run = await session.send("Runtime.evaluate", { expression: "axe.run().then((r) => JSON.stringify(r.violations))", awaitPromise: true });
    return JSON.parse(run.result.value);
  });
  for (const v of found) problems.push(`axe, ${where}: ${v.id}: ${v.help}: ${v.nodes.map((n) => n.target.join(" ")).slice(0, 4).join(", ")}`);
}

async function shot(page, name) {
  if (!shots) return;
  mkdirSync(shots, { recursive: true });
  await page.screenshot({ path: `${shots}/${name}.png` });
}

// ---- What works with any server

const general = {
  async "a new reader chats, stops, edits, goes between branches, reloads, finds the history"(url) {
    const page = await openReader(url);
    if (model) await page.selectOption("#model", model);
    await say(page, "Hello there");
    assert.ok((await lastText(page)).trim(), "an answer");
    assert.match(await answers(page).last().locator(".facts").innerText(), /first token .*tokens?\b/s);
    // Stopped by Escape.
    await page.fill("#prompt", LONG);
    await page.press("#prompt", "Enter");
    await page.waitForFunction(() => [...document.querySelectorAll("article.assistant > .body")].at(-1)?.innerText.length > 20);
    await page.keyboard.press("Escape");
    await idle(page);
    assert.match(await answers(page).last().innerText(), /Stopped\./);
    // Another answer beside it.
    await page.fill("#prompt", "");
    const first = page.locator("article.user").first();
    await first.hover();
    await first.getByRole("button", { name: "Edit message" }).click();
    await page.getByRole("textbox", { name: "Edit message" }).fill("Goodbye now");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector("article.user .body")?.innerText === "Goodbye now" && document.querySelectorAll("article").length === 2);
    await idle(page);
    assert.equal(await first.locator(".branch").innerText(), "2/2");
    await first.getByRole("button", { name: "Previous version" }).click();
    assert.equal(await first.locator(".body").innerText(), "Hello there");
    assert.equal(await page.locator("article").count(), 4);
    await first.getByRole("button", { name: "Next version" }).click();
    assert.equal(await first.locator(".body").innerText(), "Goodbye now");
    await answers(page).last().getByRole("button", { name: "Write another answer" }).click();
    await page.waitForFunction(() => document.querySelector("article.assistant .branch")?.innerText === "2/2");
    await idle(page);
    const before = await page.locator("#messages").innerText();
    await page.waitForTimeout(300);
    await page.reload();
    await page.waitForSelector("article.assistant");
    assert.equal(await page.locator("#messages").innerText(), before);
    assert.equal(await page.locator("#list li").count(), 1);
    await accessible(page, "conversation");
    await page.context().close();
  },

  async "conversations are renamed, found, deleted, brought back, exported and imported"(url) {
    const page = await openReader(url);
    await say(page, "Apples are red");
    await page.keyboard.press("Control+Shift+O");
    await say(page, "Bananas are yellow");
    assert.equal(await page.locator("#list li").count(), 2);
    await page.getByRole("button", { name: "Rename Bananas are yellow" }).click();
    await page.getByRole("textbox", { name: "Title" }).fill("Fruit");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Fruit", exact: true }).waitFor();
    await page.fill("#search", "apples");
    assert.deepEqual(await page.locator("#list .open").allInnerTexts(), ["Apples are red"]);
    await page.fill("#search", "yellow bananas");
    assert.deepEqual(await page.locator("#list .open").allInnerTexts(), ["Fruit"]);
    await page.fill("#search", "");
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("#export")]);
    const file = await download.path();
    const saved = JSON.parse(readFileSync(file, "utf8"));
    assert.equal(saved.conversations.length, 2);
    await page.getByRole("button", { name: "Delete Apples are red" }).click();
    assert.deepEqual(await page.locator("#list .open").allInnerTexts(), ["Fruit"]);
    await page.getByRole("button", { name: "Undo" }).click();
    assert.equal(await page.locator("#list li").count(), 2);
    for (const name of ["Apples are red", "Fruit"]) await page.getByRole("button", { name: `Delete ${name}` }).click();
    assert.equal(await page.locator("#list li").count(), 0);
    await page.setInputFiles("#import-file", { name: "history.json", mimeType: "application/json", buffer: readFileSync(file) });
    await page.waitForFunction(() => document.querySelectorAll("#list li").length === 2);
    await page.reload();
    await page.getByRole("button", { name: "Fruit", exact: true }).click();
    assert.equal(await page.locator("article.user .body").innerText(), "Bananas are yellow");
    await page.setInputFiles("#import-file", { name: "x.json", mimeType: "application/json", buffer: Buffer.from("{}") });
    await page.getByText("This file holds no conversations.").waitFor();
    await page.context().close();
  },

  async "settings reach the server and a seed repeats an answer"(url) {
    const page = await openReader(url);
    if (model) await page.selectOption("#model", model);
    await page.click("#settings-open");
    await accessible(page, "settings");
    await page.getByLabel("Max tokens").fill("12");
    await page.getByLabel("Seed").fill("7");
    await page.getByLabel("Temperature").fill("0.9");
    await page.getByLabel("System message").fill("Answer briefly.");
    await page.getByRole("button", { name: "Done" }).click();
    const [request] = await Promise.all([page.waitForRequest(/chat\/completions/), say(page, "Name a colour")]);
    const sent = request.postDataJSON();
    assert.equal(sent.max_tokens, 12);
    assert.equal(sent.seed, 7);
    assert.equal(sent.temperature, 0.9);
    assert.deepEqual(sent.messages, [{ role: "system", content: "Answer briefly." }, { role: "user", content: "Name a colour" }]);
    assert.ok(!("top_p" in sent));
    const text = await lastText(page);
    await answers(page).last().getByRole("button", { name: "Write another answer" }).click();
    await page.waitForFunction(() => document.querySelector("article.assistant .branch")?.innerText === "2/2");
    await idle(page);
    assert.equal(await lastText(page), text);
    await page.context().close();
  },

  async "the page fits a phone, in light and dark"(url) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await openReader(url, { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true, colorScheme });
      if (model) await page.selectOption("#model", model);
      await fill(page);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= 390, `the page is ${wide} pixels wide`);
      await shot(page, `phone-${colorScheme}`);
      await accessible(page, `phone, ${colorScheme}`);
      await page.click("#side-open");
      await page.waitForTimeout(250);
      await accessible(page, `drawer, ${colorScheme}`);
      await shot(page, `phone-list-${colorScheme}`);
      await page.keyboard.press("Escape");
      assert.ok(await page.locator("#app.narrowed").count());
      await page.context().close();
      const wider = await openReader(url, { colorScheme });
      if (model) await wider.selectOption("#model", model);
      await fill(wider);
      await accessible(wider, `desktop, ${colorScheme}`);
      await shot(wider, `desktop-${colorScheme}`);
      await wider.context().close();
    }
  },
};

// ---- What needs answers that are known

const known = {
  async "markdown becomes elements, and nothing else does"(url) {
    const page = await openReader(url);
    await say(page, "rich");
    const body = answers(page).last().locator(":scope > .body");
    for (const [selector, count] of [["h2", 1], ["pre", 1], ["ol > li", 2], ["ul ul, ol ul", 1], ["table", 1], ["tbody tr", 2], ["blockquote", 1], ["strong", 1], ["em", 2], ["del", 1], ["li.task", 2], ["hr", 1], ["img", 0], ["a", 3]]) {
      assert.equal(await body.locator(selector).count(), count, selector);
    }
    assert.match(await body.innerText(), /<img src=x onerror=alert\(1\)>/);
    for (const link of await body.locator("a").all()) {
      assert.match(await link.getAttribute("href"), /^https:\/\//);
      assert.match(await link.getAttribute("rel"), /noopener noreferrer/);
    }
    assert.equal(await body.locator("a").nth(1).getAttribute("href"), "https://example.org/a_(b)");
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await body.getByRole("button", { name: "Copy" }).click();
    assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^\/\/\/ Sorts by a key\.\nfn main\(\) \{\n {4}let mut/);
    await page.context().close();
  },

  async "a growing text looks as the whole one, and no text takes long"(url) {
    const page = await openReader(url);
    await say(page, "rich");
    const { wrong, slow } = await page.evaluate(() => {
      const source = shownNodes(state.conversation).at(-1).text;
      const [grown, whole] = [document.createElement("div"), document.createElement("div")];
      const wrong = [];
      for (let end = 1; end <= source.length; end += 1) {
        showMarkdown(grown, source.slice(0, end));
        whole.replaceChildren();
        showMarkdown(whole, source.slice(0, end));
        if (grown.outerHTML !== whole.outerHTML) wrong.push(end);
      }
      const slow = [];
      const hard = ["*", "_", "`", "[", "![", "**a ", "*a _b ", "~~", ">", "> ", "- ", "  - a\n", "|", "|-|\n", "```\n", "[a](", "<http://", "http://", "\\\\", "(", "#", "1. ", " "];
      for (const text of hard) {
        const before = performance.now();
        showMarkdown(document.createElement("div"), text.repeat(20_000 / text.length));
        if (performance.now() - before > 1500) slow.push(`${text} ${performance.now() - before}`);
      }
      return { wrong, slow };
    });
    assert.deepEqual(wrong, []);
    assert.deepEqual(slow, []);
    await page.context().close();
  },

  async "thoughts are folded, calls are shown and answered"(url, { seen }) {
    const page = await openReader(url);
    await say(page, "think");
    const fold = page.locator("details.thought").last();
    assert.equal(await fold.evaluate((d) => d.open), false);
    await fold.locator("summary").click();
    await fold.getByText("which needs no tool").waitFor();
    await say(page, "call");
    await page.locator(".call code").getByText("weather").waitFor();
    await page.getByLabel("Result").fill("rain");
    await page.getByRole("button", { name: "Send results" }).click();
    await page.locator("#messages").getByText("The tool said: rain").waitFor();
    const [call, result] = seen.requests.at(-1).messages.slice(-2);
    assert.deepEqual(call.tool_calls, [{ id: "call_1", type: "function", function: { name: "weather", arguments: '{"city": "Oslo"}' } }]);
    assert.deepEqual(result, { role: "tool", tool_call_id: "call_1", content: "rain" });
    await idle(page);
    await accessible(page, "calls");
    await page.context().close();
  },

  async "troubles are told in words and tried again"(url) {
    const page = await openReader(url);
    await say(page, "busy at first");
    await page.locator("#messages").getByText("The queue is full.").waitFor();
    await accessible(page, "trouble");
    await page.getByRole("button", { name: "Try again" }).click();
    await page.locator("#messages").getByText("You said: busy at first").waitFor();
    await idle(page);
    await say(page, "break");
    assert.match(await answers(page).last().innerText(), /This is cut[\s\S]*The connection broke/);
    await page.selectOption("#model", "large");
    await page.getByText("not loaded", { exact: true }).waitFor();
    await say(page, "patience");
    assert.match(await lastText(page), /You said: patience/);
    await page.context().close();
  },

  async "stopping reaches the server, a reader who scrolls up is left alone"(url, { seen }) {
    const page = await openReader(url);
    await page.fill("#prompt", "slow");
    await page.press("#prompt", "Enter");
    await page.waitForFunction(() => document.querySelector("#thread").scrollTop > 200);
    await page.hover("#thread");
    await page.mouse.wheel(0, -150);
    await page.waitForTimeout(100);
    const at = await page.evaluate(() => document.querySelector("#thread").scrollTop);
    await page.waitForTimeout(500);
    assert.equal(await page.evaluate(() => document.querySelector("#thread").scrollTop), at);
    const spoken = await page.locator("#spoken p").count();
    assert.ok(spoken > 0, "sentences are read out");
    await page.click("#latest");
    const cut = seen.cut;
    // The answer goes on while another conversation is shown.
    await page.click("#new");
    assert.equal(await page.locator("article").count(), 0);
    await page.goBack();
    await page.waitForSelector("#stop:not([hidden])");
    await page.click("#stop");
    await idle(page);
    await page.waitForTimeout(100);
    assert.equal(seen.cut, cut + 1);
    assert.equal(await page.evaluate(() => document.activeElement.id), "prompt");
    await page.context().close();
  },

  async "a conversation deleted while it is written stays deleted"(url) {
    const page = await openReader(url);
    await page.fill("#prompt", "slow");
    await page.press("#prompt", "Enter");
    await page.getByText("One more word.").first().waitFor();
    await page.getByRole("button", { name: "Delete slow" }).click();
    await page.waitForTimeout(400);
    assert.equal(await page.locator("#list li").count(), 0);
    await page.reload();
    await page.waitForFunction(() => document.querySelector("#list .none"));
    await page.context().close();
  },

  async "a reload in the middle keeps what was written"(url) {
    const page = await openReader(url);
    await page.fill("#prompt", "slow");
    await page.press("#prompt", "Enter");
    await page.waitForTimeout(2800);
    await page.reload();
    await page.waitForSelector("article.assistant");
    assert.match(await lastText(page), /One more word\./);
    assert.match(await answers(page).last().innerText(), /Stopped\./);
    await page.context().close();
  },

  async "two windows share one history"(url) {
    const page = await openReader(url);
    await say(page, "from the first");
    const other = await page.context().newPage();
    await other.goto(url);
    await other.getByRole("button", { name: "from the first", exact: true }).click();
    await other.waitForFunction(() => document.querySelector("#model option")?.value);
    await say(other, "from the second");
    await page.waitForFunction(() => document.querySelectorAll("article").length === 4);
    await page.context().close();
  },

  async "keys: Shift+Enter, arrow up, skip link, themes"(url) {
    const page = await openReader(url);
    await page.focus("#prompt");
    await page.keyboard.type("one");
    await page.keyboard.press("Shift+Enter");
    await page.keyboard.type("two");
    await page.keyboard.press("Enter");
    await page.waitForSelector("article.assistant");
    await idle(page);
    assert.equal(await page.locator("article.user .body").innerText(), "one\ntwo");
    await page.keyboard.press("ArrowUp");
    assert.equal(await page.getByRole("textbox", { name: "Edit message" }).inputValue(), "one\ntwo");
    await page.keyboard.press("Escape");
    assert.equal(await page.locator(".edit").count(), 0);
    await page.keyboard.press("Tab");
    for (const wanted of ["light", "dark", undefined]) {
      await page.click("#theme");
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), wanted);
    }
    await page.context().close();
  },

  async "a server with keys asks for one"() {
    const locked = await startStandIn({ key: "sesame" });
    const page = await openReader(locked.url);
    await page.waitForSelector("#key[open]");
    await accessible(page, "key");
    await page.fill("#key-value", "sesame");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector("#model option")?.value === "tiny");
    await say(page, "open");
    assert.match(await lastText(page), /You said: open/);
    await page.context().close();
    locked.close();
  },
};

browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const server = address ? { url: address, close() {} } : await startStandIn();
let failed = 0;
const only = process.env.ONLY;
for (const [name, check] of Object.entries(address ? general : { ...general, ...known })) {
  if (only && !name.includes(only)) continue;
  problems.length = 0;
  let words = "";
  try {
    await check(server.url, server);
    words = problems.join("\n");
  } catch (error) {
    words = [error.stack, ...problems].join("\n");
    for (const context of browser.contexts()) {
      const page = context.pages()[0];
      if (page) await shot(page, "failed").catch(() => {});
      await context.close();
    }
  }
  failed += words ? 1 : 0;
  process.stdout.write(`${words ? "FAILED" : "ok"}  ${name}\n${words && `${words}\n`}`);
}
await browser.close();
server.close();
process.exit(failed ? 1 : 0);
