// Colours for code: comments, strings, numbers and keywords, for whole families of languages. One
// linear pass; what it does not know stays plain.

import { h } from "./dom.js";

const WORDS = {
  python: "and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return self try while with yield None True False",
  c: "abstract as async await bool boolean break case catch char class const constexpr continue default delete do double else enum export extends extern false final finally float fn for from func function go if impl implements import in inline int interface let long match mod mut namespace new nil null of override package private protected pub public return self short signed sizeof static struct super switch template this throw throws trait true try type typedef typename typeof undefined union unsafe unsigned use using var virtual void volatile where while yield",
  shell: "case do done echo elif else esac exit export fi for function if in local return set then until while",
  sql: "alter and as asc between by case create delete desc distinct drop else end from group having in index inner insert into is join left like limit not null on or order outer primary right select set table then union update values view when where with",
  json: "true false null",
};
const FAMILY = {
  py: "python", python: "python", ruby: "python", rb: "python", yaml: "json", yml: "json", toml: "json",
  json: "json", jsonl: "json", sh: "shell", bash: "shell", shell: "shell", zsh: "shell", sql: "sql",
  c: "c", cpp: "c", "c++": "c", h: "c", hpp: "c", cs: "c", csharp: "c", java: "c", kotlin: "c", swift: "c", go: "c",
  rust: "c", rs: "c", js: "c", javascript: "c", jsx: "c", ts: "c", typescript: "c", tsx: "c", php: "c", css: "c",
};
const HASH = "#[^\\n]*";
const SLASH = "\\/\\/[^\\n]*|\\/\\*(?:[^*]|\\*(?!\\/))*(?:\\*\\/|$)";
const COMMENTS = { python: HASH, shell: HASH, json: HASH, sql: "--[^\\n]*", c: SLASH };
const STRINGS = `"""(?:[^"]|"(?!""))*(?:"""|$)|"(?:[^"\\\\\\n]|\\\\.)*"?|'(?:[^'\\\\\\n]|\\\\.)*'?|\`(?:[^\`\\\\]|\\\\.)*\`?`;
const MAX_LENGTH = 50_000; // characters; longer code stays plain

const patterns = new Map();

function patternOf(family) {
  if (!patterns.has(family)) {
    const parts = `(?<comment>${COMMENTS[family]})|(?<string>${STRINGS})|(?<number>\\b\\d[\\w.]*)|(?<word>[A-Za-z_]\\w*)`;
    patterns.set(family, { pattern: new RegExp(parts, "g"), words: new Set(WORDS[family].split(" ")) });
  }
  return patterns.get(family);
}

/** The nodes of some code in a language, by the name that follows its fence. */
export function highlight(language, code) {
  const family = FAMILY[language.toLowerCase()];
  if (!family || code.length > MAX_LENGTH) return [code];
  const { pattern, words } = patternOf(family);
  const nodes = [];
  let from = 0;
  for (const found of code.matchAll(pattern)) {
    const kind = kindOf(found.groups, words, family);
    if (!kind) continue;
    nodes.push(code.slice(from, found.index), h("span", { class: "code-" + kind }, found[0]));
    from = found.index + found[0].length;
  }
  nodes.push(code.slice(from));
  return nodes;
}

function kindOf({ comment, string, number, word }, words, family) {
  if (comment) return "comment";
  if (string) return "string";
  if (number) return "number";
  return words.has(family === "sql" ? word.toLowerCase() : word) ? "keyword" : null;
}
