// Conversations are trees: a changed message or another answer is one more child, and each parent knows which child is shown.
// They are kept in the browser's own database.

const ROOT = "root";
const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, "0")).join("");

function newConversation(settings) {
  const now = Date.now();
  return { id: newId(), title: "", named: false, created: now, changed: now, nodes: {}, chosen: {}, settings: { ...settings }, model: "" };
}

function addNode(conversation, parent, fields) {
  const node = { id: newId(), parent, at: Date.now(), ...fields };
  // Two nodes of one moment keep their order.
  const last = childrenOf(conversation, parent).at(-1);
  if (last && last.at >= node.at) node.at = last.at + 1;
  conversation.nodes[node.id] = node;
  conversation.chosen[parent] = node.id;
  conversation.changed = Date.now();
  return node;
}

const childrenOf = (conversation, parent) =>
  Object.values(conversation.nodes).filter((n) => n.parent === parent).sort((a, b) => a.at - b.at);

/** The messages that are shown, first to last. */
function shownNodes(conversation) {
  const nodes = [];
  for (let parent = ROOT; ;) {
    const children = childrenOf(conversation, parent);
    if (!children.length || nodes.length > 100_000) return nodes;
    const node = children.find((n) => n.id === conversation.chosen[parent]) ?? children.at(-1);
    nodes.push(node);
    parent = node.id;
  }
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function hasObjectArguments(call) {
  if (!call.arguments.trim()) return true;
  try { return isObject(JSON.parse(call.arguments)); } catch { return false; }
}

/** What the model is told when it answers `parent`. */
function messagesUpTo(conversation, parent) {
  const nodes = [];
  for (let node = conversation.nodes[parent]; node; node = conversation.nodes[node.parent]) nodes.unshift(node);
  const messages = [];
  const system = conversation.settings.system?.trim();
  if (system) messages.push({ role: "system", content: system });
  for (const [i, node] of nodes.entries()) {
    if (node.role === "user") {
      // After an answer that failed two messages of the user meet; many templates want turns.
      if (messages.at(-1)?.role === "user") messages.at(-1).content += `\n\n${node.text}`;
      else messages.push({ role: "user", content: node.text });
    } else if (node.role === "tool") {
      for (const { id, text } of node.results) messages.push({ role: "tool", tool_call_id: id, content: text });
    } else {
      const message = assistantMessage(node, nodes[i + 1]?.role === "tool");
      if (message) messages.push(message);
    }
  }
  return messages;
}

/** An answer handed back. Thoughts count until the results of their calls are in; calls that nobody answered are left out. */
function assistantMessage(node, answered) {
  const calls = answered ? node.calls.filter(hasObjectArguments) : [];
  if (!node.text && !calls.length) return null;
  const message = { role: "assistant", content: node.text };
  if (!calls.length) return message;
  if (node.thought) message.reasoning_content = node.thought;
  message.tool_calls = calls.map((c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments } }));
  return message;
}

const titleOf = (conversation) => conversation.title || "New chat";

/** Those that hold all words, latest first. */
function searchConversations(conversations, words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const holds = (conversation) => {
    const text = [conversation.title, ...Object.values(conversation.nodes).map((n) => n.text ?? "")].join("\n").toLowerCase();
    return wanted.every((word) => text.includes(word));
  };
  return [...conversations].filter((c) => !wanted.length || holds(c)).sort((a, b) => b.changed - a.changed);
}

/** A conversation from a file, or null: only what is known is taken. */
function readConversation(value) {
  if (!isObject(value) || !isObject(value.nodes) || typeof value.id !== "string" || !/^[0-9a-f]{24}$/.test(value.id)) return null;
  const text = (v) => (typeof v === "string" ? v : "");
  const number = (v) => (Number.isFinite(v) ? v : Date.now());
  const conversation = newConversation({});
  Object.assign(conversation, { id: value.id, title: text(value.title).slice(0, 200), named: value.named === true, created: number(value.created), changed: number(value.changed), model: text(value.model) });
  for (const [name, setting] of Object.entries(isObject(value.settings) ? value.settings : {})) {
    if (SETTINGS.includes(name) && typeof setting === "string") conversation.settings[name] = setting;
  }
  for (const [id, node] of Object.entries(value.nodes)) {
    if (!/^[0-9a-f]{24}$/.test(id) || !isObject(node) || !["user", "assistant", "tool"].includes(node.role)) continue;
    if (node.parent !== ROOT && !isObject(value.nodes[node.parent])) continue;
    const pairs = (list, names) => (Array.isArray(list) ? list : []).filter(isObject).map((item) => Object.fromEntries(names.map((n) => [n, text(item[n])])));
    conversation.nodes[id] = {
      id, parent: node.parent, at: number(node.at), role: node.role, text: text(node.text), thought: text(node.thought), model: text(node.model),
      calls: pairs(node.calls, ["id", "name", "arguments"]), results: pairs(node.results, ["id", "text"]), state: "done",
      error: text(node.error), finish: text(node.finish), facts: isObject(node.facts) ? readFacts(node.facts) : null,
    };
  }
  for (const [parent, child] of Object.entries(isObject(value.chosen) ? value.chosen : {})) {
    if (conversation.nodes[child]?.parent === parent) conversation.chosen[parent] = child;
  }
  return conversation;
}

const readFacts = (facts) => Object.fromEntries(Object.entries(facts).filter(([, v]) => Number.isFinite(v) || v === true));

/** The browser's database; without one (private windows) conversations last as long as the page. */
class Library {
  constructor() {
    this.conversations = new Map();
    this.database = null;
    this.channel = "BroadcastChannel" in window ? new BroadcastChannel("hf2q-history") : null;
  }

  async open() {
    try {
      const request = indexedDB.open("hf2q", 1);
      request.onupgradeneeded = () => request.result.createObjectStore("conversations", { keyPath: "id" });
      this.database = await settled(request);
      await this.read();
    } catch {
      this.database = null;
    }
    return this.database !== null;
  }

  store(mode) {
    return this.database.transaction("conversations", mode).objectStore("conversations");
  }

  async read() {
    const all = await settled(this.store("readonly").getAll());
    this.conversations = new Map(all.map((c) => [c.id, c]));
  }

  /** Writes one. Nodes that another window added meanwhile are kept: nodes are never taken away. */
  async save(conversation) {
    this.conversations.set(conversation.id, conversation);
    if (!this.database) return;
    const store = this.store("readwrite");
    const old = await settled(store.get(conversation.id));
    conversation.nodes = { ...old?.nodes, ...conversation.nodes };
    await settled(store.put(conversation));
    this.channel?.postMessage(conversation.id);
  }

  async remove(id) {
    this.conversations.delete(id);
    if (this.database) await settled(this.store("readwrite").delete(id));
    this.channel?.postMessage(id);
  }
}

function settled(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("another window holds an older database"));
  });
}
