// The page: what is shown, and what its controls do.

const library = new Library();
const state = { conversation: newConversation({}), models: [], modelsTrouble: "", pinned: true, frame: 0 };

function remembered(name, otherwise) {
  try { return JSON.parse(localStorage.getItem(`hf2q-${name}`)) ?? otherwise; } catch { return otherwise; }
}
function remember(name, value) {
  try { localStorage.setItem(`hf2q-${name}`, JSON.stringify(value)); } catch { /* A browser that keeps nothing. */ }
}

// ---- The list of conversations

function ageOf(time) {
  const day = new Date().setHours(0, 0, 0, 0);
  if (time >= day) return "Today";
  if (time >= day - 86_400_000) return "Yesterday";
  return time >= day - 6 * 86_400_000 ? "This week" : "Earlier";
}

function showList() {
  const words = byId("search").value;
  const found = searchConversations(library.conversations.values(), words);
  const groups = new Map();
  for (const conversation of found) {
    const age = ageOf(conversation.changed);
    if (!groups.has(age)) groups.set(age, el("ul", { "aria-label": age }));
    groups.get(age).append(listEntry(conversation));
  }
  const parts = [...groups].flatMap(([age, list]) => [el("h2", null, age), list]);
  if (!parts.length) parts.push(el("p", { class: "none" }, words ? "Nothing found." : "Conversations will be listed here."));
  const focused = document.activeElement?.closest?.("#list li")?.dataset.id;
  byId("list").replaceChildren(...parts);
  if (focused) byId("list").querySelector(`li[data-id="${focused}"] .open`)?.focus();
  byId("heading").textContent = titleOf(state.conversation);
  document.title = state.conversation.title ? `${state.conversation.title} – hf2q` : "hf2q";
}

function listEntry(conversation) {
  const current = conversation.id === state.conversation.id;
  const title = titleOf(conversation);
  const open = el("button", { type: "button", class: "open", title, "aria-current": current ? "page" : null, onclick: () => { openConversation(conversation); closeDrawer(); } }, title);
  const entry = el("li", { class: current ? "current" : null, "data-id": conversation.id }, open,
    iconButton("edit", `Rename ${title}`, () => renameEntry(entry, conversation)),
    iconButton("delete", `Delete ${title}`, () => deleteConversation(conversation)));
  return entry;
}

function renameEntry(entry, conversation) {
  const field = el("input", { "aria-label": "Title", maxlength: "200" });
  field.value = conversation.title;
  const finish = (keep) => {
    field.onblur = null;
    if (keep && field.value.trim()) Object.assign(conversation, { title: field.value.trim(), named: true });
    save(conversation);
    showList();
    byId("list").querySelector(`li[data-id="${conversation.id}"] .open`)?.focus();
  };
  field.onblur = () => finish(true);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.isComposing) finish(true);
    if (event.key === "Escape") { event.stopPropagation(); finish(false); }
  });
  entry.replaceChildren(field);
  field.focus();
  field.select();
}

function deleteConversation(conversation) {
  deleted.add(conversation.id);
  runOf(conversation)?.stop();
  library.remove(conversation.id).catch(cannotKeep);
  const shown = state.conversation.id === conversation.id;
  if (shown) newChat();
  showList();
  byId("list").focus();
  toast(`Deleted “${titleOf(conversation).slice(0, 40)}”`, "Undo", () => { deleted.delete(conversation.id); save(conversation); showList(); if (shown) openConversation(conversation); });
}

const cannotKeep = () => toast("The browser could not keep this conversation. Export it if you need it.");

/** Deleted here: what a last piece of an answer would bring back. */
const deleted = new Set();

async function save(conversation) {
  if (deleted.has(conversation.id)) return;
  conversation.saved = Date.now();
  await library.save(conversation).catch(cannotKeep);
}

// ---- The conversation

function openConversation(conversation) {
  state.conversation = conversation;
  const address = Object.keys(conversation.nodes).length ? `#${conversation.id}` : location.pathname;
  if (location.hash !== `#${conversation.id}`) history.pushState(null, "", address);
  if (state.models.some((m) => m.id === conversation.model && m.chat !== false)) byId("model").value = conversation.model;
  byId("spoken").replaceChildren();
  for (const run of running.values()) run.speech.shown = run.conversation === conversation;
  showModelState();
  showThread();
  showList();
  toLatest();
}

function newChat() {
  openConversation(newConversation(remembered("settings", {})));
  closeDrawer();
  // On a phone the keyboard would cover the page.
  if (matchMedia("(hover: hover)").matches) byId("prompt").focus();
}

function showThread() {
  const nodes = shownNodes(state.conversation);
  byId("messages").replaceChildren(...nodes.map((node) => showNode(state.conversation, node, actions)));
  byId("empty").hidden = nodes.length > 0;
  showComposer();
}

function showComposer() {
  const busy = Boolean(runOf(state.conversation));
  const focused = document.activeElement;
  byId("send").hidden = busy;
  byId("stop").hidden = !busy;
  byId("send").disabled = !byId("prompt").value.trim() || !byId("model").value;
  // A control that goes away leaves its focus to the field.
  if (focused === byId("stop") || focused === byId("send")) byId("prompt").focus();
}

/** An answer grew or ended: draws it in the next frame, keeps it now and then. */
function answerChanged(conversation, node, whole) {
  if (whole || Date.now() - (conversation.saved ?? 0) > 2000) save(conversation);
  if (whole) showList();
  if (conversation !== state.conversation) return;
  if (whole) {
    const article = byId(`m-${node.id}`);
    if (article) article.update();
    else showThread();
    showComposer();
    if (state.pinned) toLatest();
    return;
  }
  state.frame ||= requestAnimationFrame(() => {
    state.frame = 0;
    for (const run of running.values()) byId(`m-${run.node.id}`)?.update();
    if (state.pinned) toLatest();
  });
}

function toLatest() {
  const thread = byId("thread");
  thread.scrollTop = thread.scrollHeight;
  state.pinned = true;
  byId("latest").hidden = true;
}

function watchScrolling() {
  const thread = byId("thread");
  let before = 0;
  thread.addEventListener("scroll", () => {
    const gap = thread.scrollHeight - thread.scrollTop - thread.clientHeight;
    // Only going up lets go of the end; a growing answer does not.
    if (gap < 40) state.pinned = true;
    else if (thread.scrollTop < before) state.pinned = false;
    before = thread.scrollTop;
    byId("latest").hidden = gap < 120;
  }, { passive: true });
}

async function answer(conversation, parent) {
  const model = byId("model").value;
  conversation.model = model;
  remember("model", model);
  if (conversation === state.conversation) state.pinned = true;
  const node = await writeAnswer(conversation, parent, model, (n, whole) => answerChanged(conversation, n, whole));
  readModels();
  if (node.status === 401) actions.key(node);
}

function ask(text, parent) {
  const conversation = state.conversation;
  if (runOf(conversation)) return;
  const node = addNode(conversation, parent, { role: "user", text });
  if (!conversation.title) conversation.title = text.split("\n")[0].slice(0, 80);
  history.replaceState(null, "", `#${conversation.id}`);
  answer(conversation, node.id);
  showThread();
  toLatest();
}

/** Asks again: the new answer stands beside the old one. */
function retry(node) {
  const { conversation } = state;
  if (runOf(conversation)) return;
  answer(conversation, node.parent);
  showThread();
}

const actions = {
  edit(node, text) {
    if (runOf(state.conversation)) return toast("Stop the answer first.");
    ask(text, node.parent);
    byId("prompt").focus();
  },
  choose(node, label) {
    state.conversation.chosen[node.parent] = node.id;
    save(state.conversation);
    showThread();
    const again = byId(`m-${node.id}`);
    const button = again?.querySelector(`[aria-label="${label}"]:not(:disabled)`) ?? again?.querySelector(".branch button:not(:disabled)");
    button?.focus();
  },
  again: (node) => retry(node),
  retry,
  results(node, results) {
    if (runOf(state.conversation)) return;
    const { id } = addNode(state.conversation, node.id, { role: "tool", results });
    answer(state.conversation, id);
    showThread();
  },
  key: (node) => openKey(() => retry(node)),
  waitingFor(node) {
    const model = state.models.find((m) => m.id === node.model);
    return model && model.state !== "loaded" ? "Loading the model…" : "Reading…";
  },
};

// ---- Models

const STATES = { loaded: "loaded", loading: "loading", unloaded: "not loaded", failed: "failed to load" };

async function readModels() {
  clearTimeout(readModels.timer);
  try {
    state.models = await listModels();
    state.modelsTrouble = "";
  } catch (error) {
    state.modelsTrouble = error.message;
    state.locked = error.status === 401;
    if (error.status === 401 && !byId("key").open && !readModels.asked) {
      readModels.asked = true;
      openKey(() => {
        readModels.asked = false;
        readModels();
      });
    }
  }
  showModels();
  const soon = running.size > 0 || state.models.some((m) => m.state === "loading");
  readModels.timer = setTimeout(() => (document.hidden ? null : readModels()), soon ? 1500 : 10_000);
}

function showModels() {
  const select = byId("model");
  const wanted = select.value || state.conversation.model || remembered("model", "");
  const options = state.models.map((m) => {
    const mute = m.chat === false;
    const notes = [m.state === "loaded" ? "" : STATES[m.state], mute ? "cannot chat: no chat template" : ""].filter(Boolean).join(", ");
    return [m.id, notes ? `${m.id} (${notes})` : m.id, mute];
  });
  // An open list stays as it is unless something changed.
  const key = JSON.stringify(options);
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    select.replaceChildren(...options.map(([value, label, mute]) => el("option", { value, disabled: mute }, label)));
    if (!options.length) select.append(el("option", { value: "" }, "No model"));
    const talks = state.models.filter((m) => m.chat !== false);
    // What is known to chat comes before what may.
    const first = talks.find((m) => m.id === wanted) ?? talks.find((m) => m.chat) ?? talks[0];
    select.value = first?.id ?? "";
    if (!first && options.length) select.prepend(el("option", { value: "", selected: true }, "No model here can chat"));
  }
  showModelState();
  showComposer();
  for (const run of running.values()) byId(`m-${run.node.id}`)?.update();
}

function showModelState() {
  const model = state.models.find((m) => m.id === byId("model").value);
  const load = byId("load");
  const words = state.modelsTrouble ? (state.locked ? "needs a key" : "not reached") : STATES[model?.state] ?? "";
  load.dataset.state = state.modelsTrouble ? "failed" : model?.state ?? "";
  load.title = state.modelsTrouble || (model?.context ? `${words}, ${model.context} tokens of context` : words);
  load.hidden = !words;
  if (load.firstChild.textContent !== words) load.firstChild.textContent = words;
}

// ---- Settings, key, theme, files

function openSettings() {
  const form = byId("settings").querySelector("form");
  for (const name of SETTINGS) form.elements[name].value = state.conversation.settings[name] ?? "";
  checkTools(form.elements.tools);
  byId("settings").showModal();
}

function takeSettings() {
  const form = byId("settings").querySelector("form");
  checkTools(form.elements.tools);
  for (const name of SETTINGS) {
    if (form.elements[name].validity.valid) state.conversation.settings[name] = form.elements[name].value;
  }
  remember("settings", state.conversation.settings);
  if (Object.keys(state.conversation.nodes).length) save(state.conversation);
}

function checkTools(field) {
  let wrong = "";
  try {
    if (field.value.trim() && !Array.isArray(JSON.parse(field.value))) wrong = "Tools are a JSON list.";
  } catch (error) {
    wrong = `This is no JSON: ${error.message}`;
  }
  field.setCustomValidity(wrong);
  if (wrong) field.closest("details").open = true;
}

function openKey(then) {
  const dialog = byId("key");
  byId("key-value").value = apiKey.get();
  byId("key-keep").checked = localStorage.getItem("hf2q-key") !== null;
  dialog.onclose = () => {
    if (dialog.returnValue === "ok") {
      apiKey.set(byId("key-value").value.trim(), byId("key-keep").checked);
      then();
    }
    dialog.returnValue = "";
  };
  if (!dialog.open) dialog.showModal();
}

const THEMES = ["system", "light", "dark"];

function setTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  remember("theme", theme);
  const button = byId("theme");
  button.replaceChildren(icon(theme));
  const label = { system: "Colours: as the system", light: "Colours: light", dark: "Colours: dark" }[theme];
  button.setAttribute("aria-label", label);
  button.title = label;
}

function exportHistory() {
  const conversations = [...library.conversations.values()];
  saveFile(`hf2q-${new Date().toISOString().slice(0, 10)}.json`, "application/json", JSON.stringify({ format: "hf2q-conversations", version: 1, conversations }));
}

async function importHistory(file) {
  let found = [];
  try {
    found = JSON.parse(await file.text()).conversations.map(readConversation).filter(Boolean);
  } catch { /* No file of ours. */ }
  if (!found.length) return toast("This file holds no conversations.");
  for (const conversation of found) {
    deleted.delete(conversation.id);
    await save(conversation);
  }
  const shown = library.conversations.get(state.conversation.id);
  if (shown) openConversation(shown);
  showList();
  toast(found.length === 1 ? "One conversation imported." : `${found.length} conversations imported.`);
}

// ---- The frame of the page

const narrow = matchMedia("(max-width: 760px)");

function showSide(open) {
  byId("app").classList.toggle("narrowed", !open);
  byId("side-open").hidden = open && !narrow.matches;
  byId("new-short").hidden = byId("side-open").hidden;
  byId("side-open").setAttribute("aria-expanded", String(open));
  // A drawer over the page takes the focus for itself.
  byId("room").inert = open && narrow.matches;
}

const drawerOpen = () => narrow.matches && !byId("app").classList.contains("narrowed");

function closeDrawer() {
  if (!drawerOpen()) return;
  showSide(false);
  byId("side-open").focus();
}

function fitPrompt() {
  const prompt = byId("prompt");
  if (CSS.supports("field-sizing", "content")) return;
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight}px`;
}

function submitPrompt() {
  const prompt = byId("prompt");
  const text = prompt.value.trim();
  if (!text || runOf(state.conversation) || byId("send").disabled) return;
  prompt.value = "";
  fitPrompt();
  ask(text, shownNodes(state.conversation).at(-1)?.id ?? ROOT);
}

function promptKeys(event) {
  if (sends(event)) {
    event.preventDefault();
    submitPrompt();
  } else if (event.key === "ArrowUp" && !byId("prompt").value && !event.shiftKey) {
    const last = shownNodes(state.conversation).filter((n) => n.role === "user").at(-1);
    if (!last) return;
    event.preventDefault();
    byId(`m-${last.id}`).querySelector("[aria-label='Edit message']")?.click();
  }
}

function pageKeys(event) {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (drawerOpen()) closeDrawer();
    else runOf(state.conversation)?.stop();
  }
  if (event.key.toLowerCase() === "o" && event.shiftKey && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    newChat();
  }
}

function listen() {
  const on = (id, event, listener) => byId(id).addEventListener(event, listener);
  on("new", "click", newChat);
  on("new-short", "click", newChat);
  on("search", "input", showList);
  on("export", "click", exportHistory);
  on("import", "click", () => byId("import-file").click());
  on("import-file", "change", (event) => { importHistory(event.target.files[0]); event.target.value = ""; });
  on("side-open", "click", () => { showSide(true); byId("side-close").focus(); });
  on("side-close", "click", () => { showSide(false); byId("side-open").focus(); });
  on("shade", "click", closeDrawer);
  narrow.addEventListener("change", () => showSide(!narrow.matches));
  on("skip", "click", (event) => { event.preventDefault(); byId("prompt").focus(); });
  on("model", "change", () => { state.conversation.model = byId("model").value; remember("model", byId("model").value); showModelState(); });
  on("theme", "click", () => setTheme(THEMES[(THEMES.indexOf(remembered("theme", "system")) + 1) % THEMES.length]));
  on("settings-open", "click", openSettings);
  on("settings", "close", takeSettings);
  on("settings", "input", (event) => event.target.name === "tools" && checkTools(event.target));
  on("reset", "click", () => byId("settings").querySelectorAll("form [name]").forEach((field) => { field.value = ""; }));
  on("key-open", "click", () => { byId("settings").close(); openKey(readModels); });
  on("settings-close", "click", () => byId("settings").close());
  on("key-cancel", "click", () => byId("key").close());
  on("composer", "submit", (event) => { event.preventDefault(); submitPrompt(); });
  on("prompt", "input", () => { fitPrompt(); showComposer(); });
  on("prompt", "keydown", promptKeys);
  on("stop", "click", () => runOf(state.conversation)?.stop());
  on("latest", "click", toLatest);
  document.addEventListener("keydown", pageKeys);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) readModels();
    else for (const run of running.values()) save(run.conversation);
  });
  addEventListener("popstate", openAddressed);
  library.channel?.addEventListener("message", otherWindowWrote);
  watchScrolling();
}

/** Another window changed the history. What is being written here is newer than what lies there. */
async function otherWindowWrote() {
  const own = [...running.values()].map((run) => run.conversation);
  await library.read();
  for (const conversation of own) library.conversations.set(conversation.id, conversation);
  const shown = library.conversations.get(state.conversation.id);
  const writing = own.includes(state.conversation) || document.querySelector(".edit");
  if (shown && !writing) {
    state.conversation = shown;
    showThread();
  }
  showList();
}

/** The conversation that the address names, or a new one. */
function openAddressed() {
  const conversation = library.conversations.get(location.hash.slice(1));
  if (!conversation) return newChat();
  for (const node of Object.values(conversation.nodes)) {
    // The page went away while this was written.
    if (!running.has(node.id) && ["waiting", "writing"].includes(node.state)) node.state = "stopped";
  }
  openConversation(conversation);
}

async function start() {
  setTheme(remembered("theme", "system"));
  showSide(!narrow.matches);
  listen();
  const kept = await library.open();
  openAddressed();
  await readModels();
  if (!kept) toast("This browser keeps no history for this page.");
}

start();
