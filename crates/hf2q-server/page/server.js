// The server: models, and answers as they come.

/** Something that went wrong, in words for the reader. */
class Trouble extends Error {
  constructor(message, details) {
    super(message);
    Object.assign(this, { status: 0, code: "", seconds: 0 }, details);
  }
}

const apiKey = {
  get: () => sessionStorage.getItem("hf2q-key") ?? localStorage.getItem("hf2q-key") ?? "",
  set(key, keep) {
    for (const storage of [sessionStorage, localStorage]) storage.removeItem("hf2q-key");
    if (key) (keep ? localStorage : sessionStorage).setItem("hf2q-key", key);
  },
};

async function callServer(path, options = {}) {
  const key = apiKey.get();
  const headers = { ...options.headers, ...(key && { authorization: `Bearer ${key}` }) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble("The server cannot be reached. It may have been stopped.");
  }
  if (!response.ok) throw await troubleOf(response);
  return response;
}

async function troubleOf(response) {
  const seconds = Number(response.headers.get("retry-after")) || 0;
  let error = {};
  try { error = (await response.json()).error ?? {}; } catch { /* The status says enough. */ }
  const status = response.status;
  const known = { 401: "This server wants an API key.", 404: "The server does not know this model.", 429: "The server has too much to do. Try again in a moment." };
  return new Trouble(error.message ?? known[status] ?? `The server answered with status ${status}.`, { status, code: error.code ?? "", seconds });
}

async function listModels() {
  const { data } = await (await callServer("/v1/models")).json();
  return data.map((m) => ({ id: m.id, state: m.status?.value ?? "loaded", context: m.meta?.n_ctx, chat: m.meta?.chat }));
}

/** The data of server-sent events. */
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
      else if (line === "" && data.length) { yield data.join("\n"); data = []; }
    }
  }
}

/** The chunks of an answer, the last with `usage`. A stream that ends before its end is trouble. */
async function* answerChunks(body, signal) {
  const response = await callServer("/v1/chat/completions", {
    method: "POST", signal, headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  });
  try {
    for await (const data of eventsOf(response)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Trouble(chunk.error.message ?? "The server could not finish.", { code: chunk.error.code ?? "" });
      yield chunk;
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof Trouble) throw error;
  }
  throw new Trouble("The connection broke before the answer was finished.");
}

const SETTINGS = ["system", "temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "reasoning_effort", "tools"];
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];

/** A request by a conversation's settings; empty ones are the server's choice. */
function requestBody(conversation, parent, model) {
  const { settings } = conversation;
  const body = { model, messages: messagesUpTo(conversation, parent), stream: true, stream_options: { include_usage: true } };
  for (const name of NUMBERS) {
    if (settings[name]?.trim()) body[name] = Number(settings[name]);
  }
  if (settings.reasoning_effort) body.reasoning_effort = settings.reasoning_effort;
  if (settings.tools?.trim()) body.tools = JSON.parse(settings.tools);
  return body;
}
