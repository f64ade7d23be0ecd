// Markdown to elements. Blocks whose source has not changed keep their elements, so that a growing answer costs what is new,
// and a selection in it survives.

const MARKER = /^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)/;
const FENCE = /^\s*(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;
const DELIMITERS = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const DEEPEST = 12;

/** Shows `source` in `container`. */
function showMarkdown(container, source) {
  const blocks = splitBlocks(source.split("\n"));
  blocks.forEach((block, at) => {
    const key = `${block.kind}\n${block.lines.join("\n")}`;
    const old = container.children[at];
    if (old?.source === key) return;
    const made = makeBlock(block, 0);
    made.source = key;
    if (old) old.replaceWith(made);
    else container.append(made);
  });
  while (container.children.length > blocks.length) container.lastElementChild.remove();
}

const indentOf = (line) => line.match(/^\s*/)[0].replaceAll("\t", "    ").length;
const isBlank = (line) => line.trim() === "";
const startsTable = (lines, at) => lines[at].includes("|") && lines[at + 1]?.includes("-") && DELIMITERS.test(lines[at + 1])
  && cells(lines[at]).length === cells(lines[at + 1]).length;

/** The kind of block that a line starts, if it is not text that goes on. */
function startOf(lines, at) {
  const line = lines[at];
  if (FENCE.test(line)) return "code";
  if (HEADING.test(line)) return "heading";
  if (RULE.test(line)) return "rule";
  if (/^\s{0,3}>/.test(line)) return "quote";
  if (MARKER.test(line)) return "list";
  if (startsTable(lines, at)) return "table";
  return "text";
}

function splitBlocks(lines) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (isBlank(lines[at])) { at += 1; continue; }
    const kind = startOf(lines, at);
    const end = ENDS[kind](lines, at);
    blocks.push({ kind, lines: lines.slice(at, end) });
    at = end;
  }
  return blocks;
}

/** Where the block that starts at a line ends. */
const ENDS = {
  heading: (lines, at) => at + 1,
  rule: (lines, at) => at + 1,
  code(lines, at) {
    const fence = lines[at].match(FENCE)[1];
    const close = new RegExp(`^\\s*\\${fence[0]}{${fence.length},}\\s*$`);
    let end = at + 1;
    while (end < lines.length && !close.test(lines[end])) end += 1;
    return Math.min(end + 1, lines.length);
  },
  quote(lines, at) {
    while (at < lines.length && /^\s{0,3}>/.test(lines[at])) at += 1;
    return at;
  },
  table(lines, at) {
    while (at < lines.length && lines[at].includes("|")) at += 1;
    return at;
  },
  list(lines, at) {
    const indent = indentOf(lines[at]);
    const ordered = /^\s*\d/.test(lines[at]);
    let end = at + 1;
    for (let next = end; next < lines.length; next += 1) {
      const line = lines[next];
      if (isBlank(line)) continue;
      const deeper = indentOf(line) >= indent + 2;
      const sibling = MARKER.test(line) && !RULE.test(line) && /^\s*\d/.test(line) === ordered;
      const goesOn = !isBlank(lines[next - 1]) && startOf(lines, next) === "text";
      if (!deeper && !sibling && !goesOn) break;
      end = next + 1;
    }
    return end;
  },
  text(lines, at) {
    at += 1;
    while (at < lines.length && !isBlank(lines[at]) && startOf(lines, at) === "text") at += 1;
    return at;
  },
};

function makeBlock({ kind, lines }, depth) {
  return MAKERS[depth > DEEPEST ? "text" : kind](lines, depth + 1);
}

const makeBlocks = (lines, depth) => splitBlocks(lines).map((block) => makeBlock(block, depth));

const MAKERS = {
  text: (lines) => el("p", null, inline(lines.map((line) => line.trimStart()).join("\n"))),
  rule: () => el("hr"),
  quote: (lines, depth) => el("blockquote", null, ...makeBlocks(lines.map((l) => l.replace(/^\s*> ?/, "")), depth)),
  heading([line]) {
    const [, marks, text] = line.match(HEADING);
    // The page has its own first heading.
    const level = Math.min(marks.length + 1, 6);
    return el(`h${level}`, null, inline(text));
  },
  code(lines) {
    const [, fence, info] = lines[0].match(FENCE);
    const closed = lines.length > 1 && lines.at(-1).trim().startsWith(fence) && isBlank(lines.at(-1).replaceAll(fence[0], ""));
    const indent = indentOf(lines[0]);
    const body = lines.slice(1, closed ? -1 : undefined).map((l) => l.slice(Math.min(indentOf(l), indent)));
    return codeBlock(body.join("\n"), info.trim().split(/\s/)[0]);
  },
  table([head, delimiters, ...rows]) {
    const sides = cells(delimiters).map((d) => (d.endsWith(":") ? (d.startsWith(":") ? "center" : "right") : null));
    const row = (tag, line) => {
      const texts = cells(line);
      return el("tr", null, ...sides.map((side, i) => el(texts[i] ? tag : "td", { class: side }, inline(texts[i] ?? ""))));
    };
    const body = el("tbody", null, ...rows.map((line) => row("td", line)));
    const table = el("table", null, el("thead", null, row("th", head)), body);
    return el("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" }, table);
  },
  list(lines, depth) {
    const first = lines[0].match(MARKER);
    const base = indentOf(lines[0]);
    const ordered = /\d/.test(first[2]);
    const items = [];
    for (const line of lines) {
      const marker = indentOf(line) < base + 2 && !RULE.test(line) ? line.match(MARKER) : null;
      if (marker) items.push([line.slice(marker[0].length)]);
      else items.at(-1).push(line);
    }
    const made = items.map((item) => listItem(item, depth));
    const start = ordered ? parseInt(first[2], 10) : 1;
    return el(ordered ? "ol" : "ul", { start: ordered && start !== 1 ? String(start) : null }, ...made);
  },
};

function listItem([first, ...rest], depth) {
  const task = first.match(/^\[([ xX])\]\s+/);
  const indents = rest.filter((line) => !isBlank(line)).map(indentOf);
  const indent = indents.length ? Math.min(...indents) : 0;
  const lines = [task ? first.slice(task[0].length) : first, ...rest.map((line) => line.slice(Math.min(indentOf(line), indent)))];
  const blocks = makeBlocks(lines, depth);
  // A paragraph alone needs no room around it.
  const paragraphs = blocks.filter((block) => block.tagName === "P");
  const loose = paragraphs.length > 1;
  const parts = loose ? blocks : blocks.flatMap((block) => (block.tagName === "P" ? [...block.childNodes] : [block]));
  const box = task && el("input", { type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": task[1] === " " ? "open" : "done" });
  return el("li", { class: task ? "task" : null }, box, task && " ", ...parts);
}

/** The cells of a row; `\|` is no border. */
function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function codeBlock(text, language) {
  const button = el("button", {
    type: "button", class: "plain",
    async onclick() {
      button.textContent = (await copyText(text)) ? "Copied" : "Not copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    },
  }, "Copy");
  const top = el("div", { class: "code-top" }, el("span", null, language), button);
  const pre = el("pre", { tabindex: "0", role: "region", "aria-label": `Code${language ? `, ${language}` : ""}` }, el("code", null, highlight(text, language)));
  return el("div", { class: "code" }, top, pre);
}

const KEYWORDS = new Set(("abstract as async await bool break case catch char class const continue crate def default del delete do double elif else enum except "
  + "export extends extern false final finally float fn for from func function global go if impl implements import in int interface is lambda let long loop "
  + "match mod mut namespace new nil None not null or and package pass private protected pub public raise return self short static str string struct super switch "
  + "then this throw trait True False true try type typeof undefined union unsafe use using var void where while with yield select insert update create table "
  + "values join on group by order limit SELECT FROM WHERE INSERT INTO UPDATE CREATE TABLE VALUES JOIN ON GROUP BY ORDER LIMIT AND OR NOT NULL AS SET "
  + "done fi echo local end local elsif unless module require").split(" "));
const HASH_COMMENTS = new Set(["python", "py", "sh", "bash", "shell", "zsh", "ruby", "rb", "yaml", "yml", "toml", "perl", "r", "make", "dockerfile", "julia"]);
const PLAIN = new Set(["", "text", "txt", "plain", "plaintext", "markdown", "md", "output", "console", "diff", "log"]);

/** Words, strings, numbers and comments, as most languages write them. */
function highlight(text, language) {
  const name = language.toLowerCase();
  const out = document.createDocumentFragment();
  if (PLAIN.has(name) || text.length > 50_000) { out.append(text); return out; }
  const comment = HASH_COMMENTS.has(name) ? "#[^\\n]*" : ["sql", "lua", "haskell", "hs"].includes(name) ? "--[^\\n]*" : "\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?(?:\\*\\/|$)";
  const quote = name === "rust" || name === "rs" ? "" : "|'(?:[^'\\\\\\n]|\\\\.)*'";
  const parts = new RegExp(`(${comment})|("(?:[^"\\\\\\n]|\\\\.)*"${quote}|\`[^\`]*\`)|(\\b\\d[\\w.]*)|([A-Za-z_]\\w*)`, "g");
  let from = 0;
  for (const found of text.matchAll(parts)) {
    const [whole, isComment, isString, isNumber] = found;
    const kind = isComment ? "c" : isString ? "s" : isNumber ? "n" : KEYWORDS.has(whole) ? "k" : null;
    if (!kind) continue;
    out.append(text.slice(from, found.index), el("span", { class: kind }, whole));
    from = found.index + whole.length;
  }
  out.append(text.slice(from));
  return out;
}

/** Text with emphasis, code and links. */
function inline(text, depth = 0) {
  const out = document.createDocumentFragment();
  const missing = new Set();
  let plain = "";
  const flush = () => { if (plain) out.append(plain); plain = ""; };
  for (let at = 0; at < text.length;) {
    const found = depth < DEEPEST && INLINE[text[at]]?.(text, at, { missing, depth });
    if (!found) { plain += text[at]; at += 1; continue; }
    if (typeof found.node === "string") plain += found.node;
    else { flush(); out.append(found.node); }
    at = found.end;
  }
  flush();
  return out;
}

/** What a character may begin: `{ node, end }` or nothing. */
const INLINE = {
  "\\": (text, at) => (/[!-/:-@[-`{-~]/.test(text[at + 1] ?? "") ? { node: text[at + 1], end: at + 2 } : null),
  "\n": (text, at) => ({ node: el("br"), end: at + 1 }),
  "`"(text, at, { missing }) {
    const marks = text.slice(at).match(/^`+/)[0];
    const close = missing.has(marks) ? -1 : findRun(text, marks, at + marks.length);
    if (close < 0) { missing.add(marks); return { node: marks, end: at + marks.length }; }
    const code = text.slice(at + marks.length, close).replaceAll("\n", " ");
    const trimmed = /^ .*\S.* $/.test(code) ? code.slice(1, -1) : code;
    return { node: el("code", null, trimmed), end: close + marks.length };
  },
  "*": emphasis,
  "_": emphasis,
  "~": (text, at, state) => (text.startsWith("~~", at) ? paired(text, at, "~~", "del", state) : null),
  "!"(text, at, state) {
    // Pictures would be fetched from elsewhere; their text leads there.
    return text[at + 1] === "[" ? INLINE["["](text, at + 1, state) : null;
  },
  "["(text, at, { depth }) {
    const label = text.slice(at, at + 2000).match(/^\[((?:[^[\]\\]|\\.|\[[^[\]]*\])*)\]\(\s*<?([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*)>?(?:\s+["'][^"']*["'])?\s*\)/);
    if (!label) return null;
    const content = inline(label[1], depth + 1);
    return { node: link(label[2], content) ?? el("span", null, content), end: at + label[0].length };
  },
  "<"(text, at) {
    const found = text.slice(at, at + 2000).match(/^<(https?:\/\/[^\s<>]+)>/);
    return found && { node: link(found[1], found[1]) ?? found[0], end: at + found[0].length };
  },
  "h"(text, at) {
    if (!text.startsWith("http", at) || /\w/.test(text[at - 1] ?? "")) return null;
    const found = text.slice(at, at + 2000).match(/^https?:\/\/[^\s<>"'`*]+/);
    if (!found) return null;
    let address = found[0].replace(/[.,:;!?]+$/, "");
    if (address.endsWith(")") && !address.includes("(")) address = address.slice(0, -1);
    const node = link(address, address);
    return node && { node, end: at + address.length };
  },
};

function findRun(text, marks, from) {
  for (let at = text.indexOf(marks, from); at >= 0; at = text.indexOf(marks, at)) {
    let end = at;
    while (text[end] === marks[0]) end += 1;
    if (end - at === marks.length) return at;
    at = end;
  }
  return -1;
}

function emphasis(text, at, state) {
  const mark = text[at];
  if (mark === "_" && /\w/.test(text[at - 1] ?? "")) return null;
  if (text.startsWith(mark.repeat(2), at)) {
    const strong = paired(text, at, mark.repeat(2), "strong", state);
    return strong ?? { node: mark.repeat(2), end: at + 2 };
  }
  return paired(text, at, mark, "em", state);
}

/** What stands between two equal marks. */
function paired(text, at, mark, tag, { missing, depth }) {
  const start = at + mark.length;
  if (missing.has(mark) || /^\s?$/.test(text[start] ?? "")) return null;
  for (let close = text.indexOf(mark, start); close >= 0; close = text.indexOf(mark, close + 1)) {
    // In `**a *b***` the outer pair closes last.
    while (mark.length > 1 && text[close + mark.length] === mark[0]) close += 1;
    const inWord = mark[0] === "_" && /\w/.test(text[close + mark.length] ?? "");
    const twice = mark.length === 1 && text[close + 1] === mark;
    if (twice) { close += 1; continue; }
    if (close === start || /\s|\\/.test(text[close - 1]) || inWord || insideCode(text, start, close)) continue;
    return { node: el(tag, null, inline(text.slice(start, close), depth + 1)), end: close + mark.length };
  }
  missing.add(mark);
  return null;
}

const insideCode = (text, from, to) => (text.slice(from, to).match(/`/g)?.length ?? 0) % 2 === 1 && text.indexOf("`", to) >= 0;

/** A link to the web; other schemes do something else than show a page. */
function link(address, content) {
  if (!/^https?:\/\//i.test(address) || !URL.canParse(address)) return null;
  return el("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, content);
}
