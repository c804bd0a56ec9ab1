// Markdown of a model -> elements. Text stays text: nothing here parses markup, and only http and
// https become links. Images are links too, so that an answer cannot make the browser fetch anything.
//
// Long answers stream in: blocks that have not changed keep their elements. Every scan is linear in
// the text; nesting ends at a fixed depth, where the rest is shown as plain text.

import { h, copyButton } from "./dom.js";
import { highlight } from "./highlight.js";

const MAX_DEPTH = 8;
const MAX_LABEL = 500;
const MAX_URL = 2048;
const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
const TASK = /^\[([ xX])\][ \t]+/;
const PUNCTUATION = /[!-/:-@[-`{-~]/;

const shown = new WeakMap(); // container -> keys of its blocks

/** Show `source` in `container`; elements of blocks that are the same as before stay. */
export function renderMarkdown(container, source) {
  const blocks = parseBlocks(source.replace(/\r\n?/g, "\n").split("\n"), 0);
  const before = shown.get(container) ?? [];
  const keys = blocks.map((block) => block.key);
  let same = 0;
  while (same < keys.length && keys[same] === before[same]) same += 1;
  while (container.childNodes.length > same) container.lastChild.remove();
  container.append(...blocks.slice(same).map((block) => block.make()));
  shown.set(container, keys);
}

/** The blocks of some lines: [{key, kind, make}]; equal keys make equal elements. */
export function parseBlocks(lines, depth) {
  const blocks = [];
  let at = 0;
  const add = (kind, end, make) => {
    blocks.push({ kind, key: kind + "\n" + lines.slice(at, end).join("\n"), make });
    at = end;
  };
  while (at < lines.length) {
    const line = lines[at];
    if (!line.trim()) { at += 1; continue; }
    const fence = fenceOf(line);
    const heading = HEADING.exec(line);
    if (fence) {
      const end = endOfFence(lines, at + 1, fence.mark);
      const code = lines.slice(at + 1, end).join("\n");
      add("code", Math.min(end + 1, lines.length), () => codeBlock(fence.language, code));
    } else if (heading) {
      const level = Math.min(heading[1].length + 2, 6); // below the page's own headings
      const title = heading[2].replace(/[ \t]#+[ \t]*$/, "");
      add("heading", at + 1, () => h("h" + level, {}, inline(title)));
    } else if (RULE.test(line)) {
      add("rule", at + 1, () => h("hr"));
    } else if (QUOTE.test(line) && depth < MAX_DEPTH) {
      const end = endOfQuote(lines, at);
      const inner = lines.slice(at, end).map((one) => one.replace(QUOTE, ""));
      add("quote", end, () => h("blockquote", {}, elementsOf(inner, depth + 1)));
    } else if (ITEM.test(line) && depth < MAX_DEPTH) {
      const list = readList(lines, at);
      add("list", list.end, () => listBlock(list, depth));
    } else if (isTableHead(lines, at)) {
      const end = endOfRows(lines, at + 2);
      const rows = lines.slice(at, end).map(cells);
      add("table", end, () => tableBlock(rows));
    } else {
      const end = endOfParagraph(lines, at, depth);
      const text = lines.slice(at, end).map((one) => one.trimStart()).join("\n");
      add("paragraph", end, () => h("p", {}, inline(text)));
    }
  }
  return blocks;
}

function elementsOf(lines, depth) {
  return parseBlocks(lines, depth).map((block) => block.make());
}

function fenceOf(line) {
  const found = FENCE.exec(line);
  if (!found || (found[1][0] === "`" && found[2].includes("`"))) return null;
  return { mark: found[1], language: found[2].trim().split(/\s/, 1)[0] };
}

function endOfFence(lines, from, mark) {
  let at = from;
  const isEnd = (line) => {
    const text = line.trim();
    return text.length >= mark.length && text === mark[0].repeat(text.length) && line.search(/\S/) < 4;
  };
  while (at < lines.length && !isEnd(lines[at])) at += 1;
  return at;
}

function endOfQuote(lines, from) {
  let at = from;
  while (at < lines.length && QUOTE.test(lines[at])) at += 1;
  return at;
}

function endOfParagraph(lines, from, depth) {
  let at = from + 1;
  while (at < lines.length && lines[at].trim() && !startsBlock(lines, at, depth)) at += 1;
  return at;
}

function startsBlock(lines, at, depth) {
  const line = lines[at];
  if (fenceOf(line) || HEADING.test(line) || RULE.test(line)) return true;
  if (depth < MAX_DEPTH && (QUOTE.test(line) || /^ {0,3}(?:[-*+]|1[.)])[ \t]+\S/.test(line))) return true;
  return isTableHead(lines, at);
}

/** A list from line `from`: {items: [lines], start, isOrdered, isLoose, end}. */
function readList(lines, from) {
  const isOrdered = /\d/.test(ITEM.exec(lines[from])[2]);
  const list = { items: [], start: isOrdered ? parseInt(lines[from].trim(), 10) : 1, isOrdered, isLoose: false };
  let at = from;
  let indent = 0;
  let wasBlank = false;
  for (; at < lines.length; at += 1) {
    const line = lines[at];
    const own = line.search(/\S/);
    if (own < 0) { wasBlank = true; list.items.at(-1)?.push(""); continue; }
    const item = own < 4 && !(list.items.length && own >= indent) ? ITEM.exec(line) : null;
    if (item && !RULE.test(line)) {
      if (/\d/.test(item[2]) !== isOrdered) break;
      if (wasBlank && list.items.length) list.isLoose = true;
      indent = Math.min(item[0].length, item[1].length + item[2].length + 1);
      list.items.push([line.slice(item[0].length)]);
    } else if (own >= Math.min(indent, 2) && (own >= indent || !wasBlank)) {
      if (wasBlank) list.isLoose = true;
      list.items.at(-1).push(line.slice(Math.min(own, indent)));
    } else if (!wasBlank && !startsBlock(lines, at, 0)) {
      list.items.at(-1).push(line.trimStart()); // a paragraph that goes on
    } else break;
    wasBlank = false;
  }
  list.end = at;
  return list;
}

function listBlock(list, depth) {
  const items = list.items.map((lines) => {
    const task = TASK.exec(lines[0]);
    const rest = task ? [lines[0].slice(task[0].length), ...lines.slice(1)] : lines;
    const elements = elementsOf(rest, depth + 1).flatMap((element) =>
      !list.isLoose && element.tagName === "P" ? [...element.childNodes] : [element]);
    const box = task && h("input", { type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": "done" });
    return h("li", { class: task ? "task" : null }, box, elements);
  });
  return list.isOrdered ? h("ol", { start: list.start === 1 ? null : list.start }, items) : h("ul", {}, items);
}

function isTableHead(lines, at) {
  if (at + 1 >= lines.length || !lines[at].includes("|") || !lines[at + 1].includes("-")) return false;
  const rule = cells(lines[at + 1]);
  return rule.every((cell) => /^:?-+:?$/.test(cell)) && rule.length === cells(lines[at]).length;
}

function endOfRows(lines, from) {
  let at = from;
  while (at < lines.length && lines[at].trim() && lines[at].includes("|")) at += 1;
  return at;
}

function cells(line) {
  const found = [];
  let cell = "";
  const text = line.trim();
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\" && text[at + 1] === "|") { cell += "|"; at += 1; }
    else if (text[at] === "|") { found.push(cell); cell = ""; }
    else cell += text[at];
  }
  found.push(cell);
  if (text.startsWith("|")) found.shift();
  if (found.length > 1 && !found.at(-1).trim()) found.pop();
  return found.map((one) => one.trim());
}

function tableBlock([head, rule, ...rows]) {
  const side = rule.map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : null));
  const row = (tag, one) => h("tr", {}, head.map((_, place) => h(tag, { class: side[place] }, inline(one[place] ?? ""))));
  return h("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" },
    h("table", {}, h("thead", {}, row("th", head)), h("tbody", {}, rows.map((one) => row("td", one)))));
}

function codeBlock(language, code) {
  return h("figure", { class: "code" },
    h("figcaption", {}, h("span", {}, language || "text"), copyButton("Copy code", () => code)),
    h("pre", { tabindex: "0" }, h("code", {}, highlight(language, code))));
}

/** The nodes of a text with inline marks. */
export function inline(text, depth = 0) {
  const nodes = [];
  const missing = new Set(); // marks that have no end from here on
  let plain = "";
  const flush = () => { if (plain) nodes.push(plain); plain = ""; };
  const push = (node) => { flush(); nodes.push(node); };
  for (let at = 0; at < text.length;) {
    const found = depth < MAX_DEPTH ? markAt(text, at, missing, depth) : null;
    if (found) { if (typeof found.node === "string") plain += found.node; else push(found.node); at = found.end; }
    else { plain += text[at]; at += 1; }
  }
  flush();
  return nodes;
}

function markAt(text, at, missing, depth) {
  switch (text[at]) {
    case "\\":
      if (text[at + 1] === "\n") return { node: h("br"), end: at + 2 };
      return PUNCTUATION.test(text[at + 1] ?? "") ? { node: text[at + 1], end: at + 2 } : null;
    case "\n": return { node: h("br"), end: at + 1 };
    case "`": return codeAt(text, at, missing);
    case "*": case "_": case "~": return emphasisAt(text, at, missing, depth);
    case "!": return text[at + 1] === "[" ? linkAt(text, at + 1, depth) : null;
    case "[": return linkAt(text, at, depth);
    case "<": case "h": return bareLinkAt(text, at);
    default: return null;
  }
}

function codeAt(text, at, missing) {
  let end = at;
  while (text[end] === "`") end += 1;
  const mark = text.slice(at, end);
  const literal = { node: mark, end };
  if (missing.has(mark)) return literal;
  let close = text.indexOf(mark, end);
  while (close >= 0 && (text[close + mark.length] === "`" || text[close - 1] === "`")) {
    while (text[close] === "`") close += 1;
    close = text.indexOf(mark, close);
  }
  if (close < 0) { missing.add(mark); return literal; }
  let code = text.slice(end, close).replace(/\n/g, " ");
  if (/^ .*[^ ].* $/.test(code)) code = code.slice(1, -1);
  return { node: h("code", {}, code), end: close + mark.length };
}

function emphasisAt(text, at, missing, depth) {
  const letter = text[at];
  const isDouble = text[at + 1] === letter;
  if (letter === "~" && !isDouble) return null;
  for (const mark of isDouble ? [letter + letter, letter] : [letter]) {
    const begin = at + mark.length;
    if (letter === "~" && mark.length < 2) continue;
    if (missing.has(mark) || /\s/.test(text[begin] ?? " ")) continue;
    if (letter === "_" && /\w/.test(text[at - 1] ?? "")) continue;
    const close = closing(text, begin, mark);
    if (close < 0) { missing.add(mark); continue; }
    const tag = letter === "~" ? "del" : mark.length === 2 ? "strong" : "em";
    return { node: h(tag, {}, inline(text.slice(begin, close), depth + 1)), end: close + mark.length };
  }
  let end = at;
  while (text[end] === letter) end += 1;
  return { node: text.slice(at, end), end };
}

/** Where `mark` ends what began before `from`; -1 where nothing does. Code is skipped. */
function closing(text, from, mark) {
  for (let at = from; at < text.length; at += 1) {
    if (text[at] === "\\") { at += 1; continue; }
    if (text[at] === "`") {
      const end = text.indexOf("`", at + 1);
      if (end > 0) at = end;
      continue;
    }
    if (text[at] !== mark[0]) continue;
    let end = at;
    while (text[end] === mark[0]) end += 1;
    const fits = mark.length === 2 ? end - at >= 2 : end - at !== 2;
    const isWord = mark[0] === "_" && /\w/.test(text[end] ?? "");
    if (fits && at > from && !/\s/.test(text[at - 1]) && !isWord) return end - mark.length;
    at = end - 1;
  }
  return -1;
}

function linkAt(text, at, depth) {
  const isImage = text[at - 1] === "!";
  let level = 0;
  let close = -1;
  for (let place = at; place < Math.min(text.length, at + MAX_LABEL); place += 1) {
    if (text[place] === "\\") place += 1;
    else if (text[place] === "[") level += 1;
    else if (text[place] === "]" && (level -= 1) === 0) { close = place; break; }
  }
  if (close < 0 || text[close + 1] !== "(") return null;
  let end = close + 2;
  for (level = 1; end < Math.min(text.length, close + MAX_URL); end += 1) {
    if (text[end] === "(") level += 1;
    else if (text[end] === ")" && (level -= 1) === 0) break;
    else if (text[end] === "\n") return null;
  }
  if (text[end] !== ")" || level) return null;
  const target = text.slice(close + 2, end).trim().split(/\s/, 1)[0].replace(/^<(.*)>$/, "$1");
  const url = safeUrl(target);
  if (!url) return null;
  const label = text.slice(at + 1, close);
  const content = isImage ? ["Image: " + (label || url)] : inline(label, Math.max(depth + 1, MAX_DEPTH - 1));
  return { node: link(url, content), end: end + 1 };
}

function bareLinkAt(text, at) {
  const isBracketed = text[at] === "<";
  const from = at + (isBracketed ? 1 : 0);
  if (!/^https?:\/\//i.test(text.slice(from, from + 8)) || /\w/.test(text[at - 1] ?? "")) return null;
  const part = text.slice(from, from + MAX_URL);
  let found = /^[^\s<>"`]+/.exec(part)[0];
  if (isBracketed && part[found.length] !== ">") return null;
  if (!isBracketed) found = found.replace(/[.,;:!?'*_~\]]+$/, "");
  if (!isBracketed && found.endsWith(")") && !found.includes("(")) found = found.slice(0, -1);
  const url = safeUrl(found);
  return url ? { node: link(url, [found]), end: from + found.length + (isBracketed ? 1 : 0) } : null;
}

/** The URL if a browser may follow it from here: http and https, nothing else; else null. */
export function safeUrl(text) {
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

function link(url, content) {
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer nofollow", title: url }, content);
}
