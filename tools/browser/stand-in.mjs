// A server that speaks as `hf2q serve` does, with answers that are known: what a message asks for, it gets.

import { createServer } from "node:http";
import { policyOf, readPage } from "./page.mjs";

const RICH = `# Sorting in Rust

A **stable** sort keeps *equal* elements in order; \`sort_unstable\` does ~~never~~ not promise that. See [the manual](https://doc.rust-lang.org/std/) or https://example.org/a_(b).

\`\`\`rust
/// Sorts by a key.
fn main() {
    let mut words = vec!["pear", "fig", "apple"];
    words.sort_by_key(|w| w.len()); // 3, 4, 5
    println!("{words:?}");
}
\`\`\`

1. Measure first.
   - with real data
   - and *cold* caches
2. Then choose:

| Method | Stable | Worst case |
|:--|:-:|--:|
| \`sort\` | yes | n log n |
| \`sort_unstable\` | no | n log n |

> Premature optimization is the root of all evil.

- [x] read
- [ ] run it

<img src=x onerror=alert(1)> [no](javascript:alert(1)) ![pixel](https://example.org/pixel.png)

---
That is all.`;

const THOUGHT = "The reader wants a sum. 2 + 2 is **4**, which needs no tool.";
const words = (text) => text.match(/\s*\S+\s*|\s+/g) ?? [];
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Starts one; `port` 0 is any that is free. With a key, requests need it. */
export async function startStandIn({ port = 0, key = "" } = {}) {
  const seen = { requests: [], cut: 0, failures: 0, loads: { large: "unloaded" } };
  const server = createServer((request, response) => {
    handle(request, response, seen, key).catch(() => response.destroy());
  });
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, seen, close: () => { server.closeAllConnections(); server.close(); } };
}

async function handle(request, response, seen, key) {
  const json = (status, value, headers = {}) => response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(value));
  if (request.url === "/") {
    const page = readPage();
    return response.writeHead(200, { "content-type": "text/html; charset=utf-8", "content-security-policy": policyOf(page) }).end(page);
  }
  if (key && request.headers.authorization !== `Bearer ${key}`) {
    return json(401, { error: { message: "An API key is needed.", code: "invalid_api_key" } });
  }
  if (request.url === "/v1/models") {
    const model = (id, value) => ({ id, object: "model", status: { value }, ...(value === "loaded" && { meta: { n_ctx: 8192, chat: true } }) });
    return json(200, { object: "list", data: [model("tiny", "loaded"), model("large", seen.loads.large)] });
  }
  if (request.url !== "/v1/chat/completions") return json(404, { error: { message: "There is no such route." } });
  let body = "";
  for await (const part of request) body += part;
  const asked = JSON.parse(body);
  seen.requests.push(asked);
  if (asked.model === "large" && seen.loads.large !== "loaded") {
    seen.loads.large = "loading";
    setTimeout(() => { seen.loads.large = "loaded"; }, 1500);
    return json(503, { error: { message: "The model 'large' is being loaded. Try again later.", code: "model_loading" } }, { "retry-after": "1" });
  }
  const last = asked.messages.at(-1);
  if (last.content.startsWith("busy") && seen.failures++ === 0) {
    return json(429, { error: { message: "The queue is full.", code: "queue_full" } }, { "retry-after": "1" });
  }
  return stream(asked, last, response, seen);
}

async function stream(asked, last, response, seen) {
  let gone = false;
  response.on("close", () => { if (!response.writableFinished) { gone = true; seen.cut += 1; } });
  response.writeHead(200, { "content-type": "text/event-stream" });
  const send = (value) => response.write(`data: ${JSON.stringify(value)}\n\n`);
  const delta = (d, finish = null) => send({ choices: [{ index: 0, delta: d, finish_reason: finish }] });
  let tokens = 0;
  const say = async (field, text, pace) => {
    for (const word of words(text)) {
      if (gone) return;
      tokens += 1;
      delta({ [field]: word });
      await sleep(pace);
    }
  };
  delta({ role: "assistant", content: "" });
  const wish = last.role === "tool" ? "tool" : (/^\w+/.exec(last.content.toLowerCase())?.[0] ?? "");
  await sleep(wish === "slow" ? 300 : 30);
  if (wish === "rich") await say("content", RICH, 2);
  else if (wish === "slow") await say("content", "One more word. ".repeat(400), 15);
  else if (wish === "long") await say("content", Array.from({ length: 80 }, (_, i) => `Line ${i}\n\n`).join(""), 1);
  else if (wish === "break") { await say("content", "This is cut ", 2); return response.destroy(); }
  else if (wish === "think") { await say("reasoning_content", THOUGHT, 10); await say("content", "It is 4.", 10); }
  else if (wish === "call") {
    delta({ tool_calls: [{ index: 0, id: "call_1", type: "function", function: { name: "weather", arguments: "" } }] });
    for (const text of ['{"city":', ' "Oslo"}']) { delta({ tool_calls: [{ index: 0, function: { arguments: text } }] }); await sleep(10); }
  } else await say("content", wish === "tool" ? `The tool said: ${last.content}` : `You said: ${last.content}`, 5);
  delta({}, wish === "call" ? "tool_calls" : "stop");
  const prompt = asked.messages.length * 12;
  send({ choices: [], usage: { prompt_tokens: prompt, completion_tokens: tokens, prompt_tokens_details: { cached_tokens: prompt - 12 } } });
  response.end("data: [DONE]\n\n");
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const { url } = await startStandIn({ port: Number(process.argv[2] ?? 8090), key: process.argv[3] ?? "" });
  process.stdout.write(`${url}\n`);
}
