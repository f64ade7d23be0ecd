"use strict";
// Elements are made by name, never from markup: what a model or a file says stays text.

const byId = (id) => document.getElementById(id);

/** An element. Properties that are functions listen (`onclick`); others are attributes; null, false: absent. */
function el(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(space, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

function iconButton(name, label, onclick) {
  return el("button", { type: "button", class: "icon small", "aria-label": label, title: label, onclick }, icon(name));
}

/** Copies text. Pages that did not come over TLS or from this machine have no clipboard; they copy a selection. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = el("textarea", { class: "unseen", "aria-hidden": "true" });
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

/** Says something at the foot of the page, with something that may be done about it. */
function toast(text, action, onclick) {
  const box = byId("toast");
  const [words, button] = box.children;
  clearTimeout(toast.timer);
  box.hidden = false;
  words.textContent = text;
  button.hidden = !action;
  button.textContent = action ?? "";
  button.onclick = () => { box.hidden = true; onclick(); };
  toast.timer = setTimeout(() => { box.hidden = true; }, action ? 8000 : 3500);
}

/** Reads text to those who listen, in whole sentences. */
function speak(text) {
  const log = byId("spoken");
  log.append(el("p", null, text));
  while (log.children.length > 30) log.firstChild.remove();
}

function saveFile(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
