// Answers being written. An answer goes on when another conversation is shown.

/** By the id of their node: `{ conversation, node, stop }`. */
const running = new Map();
const runOf = (conversation) => [...running.values()].find((run) => run.conversation === conversation);

/** Asks for an answer to `parent`. `changed(node)` is called whenever there is more to see. */
async function writeAnswer(conversation, parent, model, changed) {
  const node = addNode(conversation, parent, {
    role: "assistant", text: "", thought: "", calls: [], model, state: "waiting", error: "", finish: "", facts: null,
  });
  const controller = new AbortController();
  const run = { conversation, node, stop: () => controller.abort(), speech: new Speech() };
  running.set(node.id, run);
  changed(node, true);
  try {
    await readAnswer(run, requestBody(conversation, parent, model), controller.signal, changed);
    node.state = "done";
  } catch (error) {
    node.state = error.name === "AbortError" ? "stopped" : "failed";
    if (node.state === "failed") {
      node.error = error instanceof Trouble ? error.message : `This page failed: ${error.message}`;
      node.status = error.status;
    }
  } finally {
    running.delete(node.id);
    run.speech.end(node);
    changed(node, true);
  }
  return node;
}

async function readAnswer(run, body, signal, changed) {
  const { node } = run;
  const clock = { asked: performance.now(), first: 0, last: 0, parts: 0 };
  for await (const chunk of patientChunks(body, signal, () => changed(node))) {
    const choice = chunk.choices?.[0];
    if (choice && addDelta(node, choice.delta ?? {})) {
      clock.last = performance.now();
      clock.first ||= clock.last;
      clock.parts += 1;
      node.state = "writing";
      run.speech.add(choice.delta.content ?? "");
    }
    if (choice?.finish_reason) node.finish = choice.finish_reason;
    if (choice || chunk.usage) node.facts = factsOf(clock, chunk.usage);
    changed(node);
  }
}

/** A model that is being loaded is worth waiting for. */
async function* patientChunks(body, signal) {
  for (;;) {
    try {
      yield* answerChunks(body, signal);
      return;
    } catch (error) {
      if (error.code !== "model_loading") throw error;
      await pause((error.seconds || 2) * 1000, signal);
    }
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
  });
}

/** Adds what a chunk brings; whether it brought anything. */
function addDelta(node, delta) {
  const thought = delta.reasoning_content ?? delta.reasoning ?? "";
  node.text += delta.content ?? "";
  node.thought += thought;
  for (const part of delta.tool_calls ?? []) {
    const call = (node.calls[part.index] ??= { id: "", name: "", arguments: "" });
    call.id ||= part.id ?? "";
    call.name ||= part.function?.name ?? "";
    call.arguments += part.function?.arguments ?? "";
  }
  return Boolean(delta.content || thought || delta.tool_calls?.length);
}

/** Milliseconds and tokens. Until the server has counted, each chunk counts as a token. */
function factsOf({ asked, first, last, parts }, usage) {
  if (!first) return null;
  const tokens = usage?.completion_tokens ?? parts;
  return {
    first: first - asked, speed: last > first && tokens > 1 ? (1000 * (tokens - 1)) / (last - first) : 0, tokens, counted: Boolean(usage),
    prompt: usage?.prompt_tokens ?? 0, cached: usage?.prompt_tokens_details?.cached_tokens ?? 0,
  };
}

/** Collects an answer until there are sentences to read out. */
class Speech {
  constructor() { this.rest = ""; }

  add(text) {
    this.rest += text;
    const end = Math.max(...[". ", "! ", "? ", "\n"].map((mark) => this.rest.lastIndexOf(mark)));
    if (end < 0) return;
    this.say(this.rest.slice(0, end + 1));
    this.rest = this.rest.slice(end + 1);
  }

  say(text) {
    const words = text.replace(/[*_`#|]+/g, "").trim();
    if (words && this.shown !== false) speak(words);
  }

  end(node) {
    this.say(this.rest);
    this.say({ done: "Answer complete.", stopped: "Answer stopped.", failed: node.error }[node.state]);
  }
}
