// The page as crates/hf2q-server/src/page.rs puts it together, and its policy.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

const crate = new URL("../../crates/hf2q-server/", import.meta.url);

export function readPage() {
  const source = readFileSync(new URL("src/page.rs", crate), "utf8");
  const list = source.match(/PAGE: &str = concat!\(([\s\S]*?)\n\);/)[1];
  const parts = list.matchAll(/include_str!\("\.\.\/(.*?)"\)|("(?:[^"\\]|\\.)*")/g);
  return [...parts].map(([, file, text]) => (file ? readFileSync(new URL(file, crate), "utf8") : JSON.parse(text))).join("");
}

export function policyOf(page) {
  const hash = (tag) => {
    const [, text] = page.match(new RegExp(`<${tag}>([\\s\\S]*?)</${tag}>`));
    return `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  };
  return `default-src 'none'; script-src ${hash("script")}; style-src ${hash("style")}; connect-src 'self'; img-src 'self' data:; `
    + "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";
}
