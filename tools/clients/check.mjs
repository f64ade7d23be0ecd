// The official Node client against a running server: `node check.mjs http://127.0.0.1:8080 MODEL`. Needs the package `openai`.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The package may lie beside the folder in which this is started.
const require = createRequire(pathToFileURL(`${process.cwd()}/`));
const { default: OpenAI } = await import(pathToFileURL(require.resolve("openai")).href);

const [url, model] = process.argv.slice(2);
const ai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "Say something about the sea." }];
const parameters = {
  type: "object",
  properties: { unit: { type: "string", enum: ["c", "f"] } },
  required: ["unit"],
  additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "get_weather", description: "d", parameters } }];

const cases = {
  async chat() {
    const whole = await ai.chat.completions.create({ model, messages, max_tokens: 20, seed: 1 });
    const stream = await ai.chat.completions.create({
      model, messages, max_tokens: 20, seed: 1, stream: true, stream_options: { include_usage: true },
    });
    let text = "";
    let usage;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  },
  async tools() {
    const stream = ai.chat.completions.stream({
      model, messages, tools, tool_choice: "required", parallel_tool_calls: false, max_tokens: 200, seed: 2,
    });
    const [choice] = (await stream.finalChatCompletion()).choices;
    assert.equal(choice.finish_reason, "tool_calls");
    const { name, arguments: text } = choice.message.tool_calls[0].function;
    assert.equal(name, "get_weather");
    assert.ok(["c", "f"].includes(JSON.parse(text).unit));
  },
  async structured() {
    const response_format = { type: "json_schema", json_schema: { name: "u", schema: parameters, strict: true } };
    const answer = await ai.chat.completions.create({ model, messages, response_format, max_tokens: 100 });
    assert.deepEqual(Object.keys(JSON.parse(answer.choices[0].message.content)), ["unit"]);
  },
  async several() {
    const answer = await ai.chat.completions.create({
      model, messages, n: 2, max_tokens: 8, logprobs: true, top_logprobs: 2, stop: ["zzzz"],
    });
    assert.deepEqual(answer.choices.map((c) => c.index), [0, 1]);
    assert.equal(answer.choices[0].logprobs.content[0].top_logprobs.length, 2);
  },
  async embeddings() {
    const answer = await ai.embeddings.create({ model, input: ["the sea", "the moon"] });
    assert.ok(Math.abs(answer.data[0].embedding.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-3);
  },
  async responses() {
    const answer = await ai.responses.create({ model, input: "Say something.", max_output_tokens: 12 });
    assert.ok(answer.output_text.length > 0);
    const kinds = [];
    for await (const event of await ai.responses.create({ model, input: "Hm.", max_output_tokens: 8, stream: true })) {
      kinds.push(event.type);
    }
    assert.equal(kinds[0], "response.created");
    assert.ok(["response.completed", "response.incomplete"].includes(kinds.at(-1)));
  },
  async errors() {
    const bad = ai.chat.completions.create({ model, messages, temperature: 9 });
    await assert.rejects(bad, (e) => e.status === 400 && e.param === "temperature");
    await assert.rejects(ai.chat.completions.create({ model: "nope", messages }), (e) => e.status === 404);
    const gone = new AbortController();
    const stream = await ai.chat.completions.create({ model, messages, stream: true }, { signal: gone.signal });
    for await (const chunk of stream) {
      if (chunk) gone.abort();
    }
  },
};

let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  try {
    await run();
    console.log(`ok      ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}`);
    console.error(error);
  }
}
process.exit(failed);
