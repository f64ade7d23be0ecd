// How messages look.

/** An element for a node, with `update()`. `act` is what its buttons do. */
function showNode(conversation, node, act) {
  const label = { user: "You", assistant: "Answer", tool: "Results of tools" }[node.role];
  const article = el("article", { class: `message ${node.role}`, "aria-label": label, id: `m-${node.id}` });
  if (node.role === "assistant") article.update = answerUpdater(article, conversation, node, act);
  else article.update = () => article.replaceChildren(...questionParts(conversation, node, act, article));
  article.update();
  return article;
}

function questionParts(conversation, node, act, article) {
  const text = node.role === "user" ? node.text : node.results.map((r) => r.text).join("\n\n");
  const body = el("div", { class: "body", dir: "auto" }, text);
  const under = el("div", { class: "under" }, branches(conversation, node, act), copyButton(() => text),
    node.role === "user" && iconButton("edit", "Edit message", () => editor(article, node, act)));
  return [body, under];
}

/** The field in which a message is changed: what comes of it is a branch beside the old one. */
function editor(article, node, act) {
  const field = el("textarea", { "aria-label": "Edit message", rows: String(Math.min(12, node.text.split("\n").length + 1)), dir: "auto" });
  field.value = node.text;
  const close = () => { article.update(); article.querySelector("[aria-label='Edit message']")?.focus(); };
  const send = () => { if (field.value.trim()) act.edit(node, field.value.trim()); };
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.stopPropagation(); close(); }
    if (sends(event)) { event.preventDefault(); send(); }
  });
  article.replaceChildren(el("div", { class: "edit" }, field, el("div", null,
    el("button", { type: "button", class: "outlined", onclick: close }, "Cancel"),
    el("button", { type: "button", class: "filled", onclick: send }, "Send"))));
  field.focus();
  field.setSelectionRange(field.value.length, field.value.length);
}

/** Enter alone sends; while an input method composes, Enter is its own. */
const sends = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229;

function branches(conversation, node, act) {
  const all = childrenOf(conversation, node.parent);
  if (all.length < 2) return null;
  const at = all.indexOf(node);
  const step = (by, name, label) => {
    const button = iconButton(name, label, () => act.choose(all[at + by], label));
    button.disabled = !all[at + by];
    return button;
  };
  return el("span", { class: "branch", role: "group", "aria-label": "Versions" }, step(-1, "left", "Previous version"),
    el("span", null, `${at + 1}/${all.length}`), step(1, "right", "Next version"));
}

function copyButton(text) {
  const button = iconButton("copy", "Copy", async () => {
    const done = await copyText(text());
    button.firstChild.replaceWith(icon(done ? "done" : "close"));
    setTimeout(() => button.firstChild.replaceWith(icon("copy")), 1600);
  });
  return button;
}

/** Changes only what changed: a growing answer is drawn often. */
function answerUpdater(article, conversation, node, act) {
  const thought = el("div", { class: "inner text" });
  const summary = el("summary");
  const folded = el("details", { class: "thought" }, summary, thought);
  const body = el("div", { class: "body text", dir: "auto" });
  const calls = el("div");
  const state = el("div");
  const under = el("div", { class: "under" });
  article.append(folded, body, calls, state, under);
  let drawn = null;
  return () => {
    const busy = running.has(node.id);
    folded.hidden = !node.thought;
    summary.textContent = busy && !node.text ? "Thinking…" : "Thoughts";
    if (folded.open) showMarkdown(thought, node.thought);
    folded.ontoggle ??= () => showMarkdown(thought, node.thought);
    showMarkdown(body, node.text);
    const now = [busy, node.state, node.calls.length, busy && JSON.stringify(node.calls), act.waitingFor(node)].join();
    if (now !== drawn) {
      calls.replaceChildren(...node.calls.filter(Boolean).map(showCall), ...callsForm(calls, conversation, node, act));
      state.replaceChildren(...stateParts(node, busy, act));
      drawn = now;
    }
    article.setAttribute("aria-busy", String(busy));
    under.replaceChildren(...(busy ? [facts(node)] : [
      branches(conversation, node, act), node.text && copyButton(() => node.text),
      iconButton("again", "Write another answer", () => act.again(node)), facts(node)]).filter(Boolean));
  };
}

function stateParts(node, busy, act) {
  if (busy && node.state === "waiting") return [el("p", { class: "waiting" }, act.waitingFor(node))];
  if (node.state === "failed") {
    const again = el("button", { type: "button", class: "outlined", onclick: () => act.retry(node) }, "Try again");
    const key = node.status === 401 && el("button", { type: "button", class: "outlined", onclick: () => act.key(node) }, "Enter key");
    return [el("div", { class: "trouble" }, el("p", null, node.error), key || again)];
  }
  const said = node.state === "stopped" ? "Stopped." : node.finish === "length" ? "The answer ended at the most tokens it may have." : "";
  if (said) return [el("p", { class: "notice" }, said)];
  return !busy && !node.text && !node.calls.length ? [el("p", { class: "notice" }, "The model said nothing.")] : [];
}

function showCall(call) {
  let shown = call.arguments;
  try { shown = JSON.stringify(JSON.parse(call.arguments), null, 2); } catch { /* It is still being written, or is none. */ }
  return el("section", { class: "call" }, el("h2", null, "Calls ", el("code", null, call.name)), el("pre", { tabindex: "0" }, shown));
}

/** Fields for what the called functions give, until an answer to them is there. */
function callsForm(box, conversation, node, act) {
  const calls = node.calls.filter(Boolean);
  if (running.has(node.id) || !calls.length || childrenOf(conversation, node.id).length) return [];
  const fields = calls.map((call) => el("textarea", { rows: "2", "aria-label": `Result of ${call.name}` }));
  const labels = calls.map((call, i) => el("label", null, calls.length > 1 ? `Result of ${call.name} (${i + 1})` : "Result", fields[i]));
  const send = () => act.results(node, calls.map((call, i) => ({ id: call.id, text: fields[i].value })));
  return [el("div", { class: "call results" }, el("h2", null, "What the tools answer"), ...labels,
    el("div", { class: "send" }, el("button", { type: "button", class: "filled", onclick: send }, "Send results")))];
}

function facts(node) {
  if (!node.facts) return null;
  const { first, speed, tokens, counted, prompt, cached } = node.facts;
  const parts = [
    speed > 0 && `${speed.toFixed(speed < 10 ? 1 : 0)} tokens/s`,
    `first token ${first < 995 ? `${Math.round(first)} ms` : `${(first / 1000).toFixed(1)} s`}`,
    counted && `${tokens} ${tokens === 1 ? "token" : "tokens"}`,
    counted && cached > 0 && `${cached} of ${prompt} prompt tokens cached`,
    node.model,
  ];
  return el("span", { class: "facts" }, ...parts.filter(Boolean).map((part) => el("span", null, part)));
}
