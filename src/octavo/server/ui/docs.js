// The API reference: shows openapi.json of this server, and lets one send a request. Text of the
// document is shown as text.

import { h, copyButton } from "./dom.js";
import { highlight } from "./highlight.js";
import { readKey, readSettings } from "./store.js";

const METHODS = ["get", "post", "put", "patch", "delete", "head"];
const MAX_SHOWN = 100_000; // characters of an answer

const $ = (id) => document.getElementById(id);
let document_ = null;

/** What a `$ref` points to, and its name. */
function resolved(value) {
  let name = null;
  let found = value;
  while (found?.$ref) {
    name = found.$ref.split("/").at(-1);
    found = found.$ref.slice(2).split("/").reduce((inner, key) => inner?.[key], document_);
  }
  return { name, found: found ?? {} };
}

/** A schema's type in a few words. */
function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.anyOf) return schema.anyOf.map(typeOf).filter((one) => one !== "null" || !("default" in schema)).join(" | ");
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  if (schema.type === "array") return `list of ${schema.items ? typeOf(schema.items) : "anything"}`;
  if (schema.type === "object" && schema.additionalProperties?.type) return `map of ${typeOf(schema.additionalProperties)}`;
  if (Array.isArray(schema.type)) return schema.type[0]; // what else is taken as a text of it
  return schema.type ?? "anything";
}

function referencesOf(schema) {
  return [schema, ...(schema.anyOf ?? []), ...(schema.items ? [schema.items, ...(schema.items.anyOf ?? [])] : [])].filter((one) => one.$ref);
}

/** A table of an object's fields; fields that are objects unfold. */
function fieldsOf(schema, seen = []) {
  const { found } = resolved(schema);
  const required = new Set(found.required ?? []);
  const entries = Object.entries(found.properties ?? {});
  if (!entries.length) return h("p", { class: "type" }, found.description ?? typeOf(found));
  entries.sort(([one], [other]) => required.has(other) - required.has(one));
  return h("dl", { class: "fields" }, entries.map(([name, field]) => [
    h("dt", {}, h("code", {}, name), required.has(name) ? h("span", { class: "needed" }, "required") : null),
    h("dd", {}, h("span", { class: "type" }, typeOf(field)), field.description ? h("p", {}, field.description) : null,
      referencesOf(field).filter((one) => !seen.includes(one.$ref) && resolved(one).found.properties).map((one) =>
        unfolding(one.$ref.split("/").at(-1), () => fieldsOf(one, [...seen, one.$ref])))),
  ]));
}

function unfolding(label, make) {
  const details = h("details", { ontoggle: () => { if (details.open && details.children.length === 1) details.append(make()); } }, h("summary", {}, label));
  return details;
}

/** A body to begin with: the document's own example, or a little of what makes it useful. */
function exampleOf(path, content) {
  const [example] = Object.values(content.examples ?? {});
  if (example) return JSON.stringify(example.value, null, 2);
  const { found } = resolved(content.schema);
  const has = (name) => name in (found.properties ?? {});
  const body = {};
  if (has("model")) body.model = readSettings().model ?? "";
  if (has("messages")) body.messages = [{ role: "user", content: "Name three colours." }];
  else if (has("prompt")) body.prompt = "Once upon a time";
  else if (has("input")) body.input = "Name three colours.";
  if (has("tokens")) body.tokens = [1, 2, 3];
  if (has("max_tokens")) body.max_tokens = 64;
  if (path.startsWith("/api/") && has("stream")) body.stream = false;
  return JSON.stringify(body, null, 2);
}

function tryIt(method, path, content) {
  const body = content && h("textarea", { class: "mono", rows: 8, spellcheck: "false", "aria-label": "Body of the request", value: exampleOf(path, content) });
  const places = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => h("input", { placeholder: name, "aria-label": name, dataset: { name } }));
  const status = h("p", { class: "type", role: "status" });
  const answer = h("pre", { tabindex: "0", hidden: true });
  const send = async () => {
    status.textContent = "Sending…";
    const target = places.reduce((url, input) => url.replace(`{${input.dataset.name}}`, encodeURIComponent(input.value)), path).slice(1);
    const { key } = readKey();
    const headers = { ...(body ? { "Content-Type": "application/json" } : {}), ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    const began = performance.now();
    try {
      const response = await fetch(target || "./", { method: method.toUpperCase(), headers, body: body?.value });
      const text = await response.text();
      status.textContent = `${response.status} ${response.statusText} after ${Math.round(performance.now() - began)} ms`;
      answer.replaceChildren(...highlight("json", pretty(text).slice(0, MAX_SHOWN)));
      answer.hidden = !text;
    } catch (error) {
      status.textContent = `The request failed: ${error.message}`;
    }
  };
  return h("div", { class: "try" }, places, body ?? null,
    h("div", { class: "try-line" }, h("button", { type: "button", class: "primary", onclick: send }, "Send"), status), answer);
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function curlOf(method, path, content) {
  const lines = [`curl -X ${method.toUpperCase()} '${new URL(path.slice(1) || "./", location.href).href.replaceAll("%7B", "{").replaceAll("%7D", "}")}'`];
  if (readKey().key) lines.push("-H 'Authorization: Bearer '\"$API_KEY\"");
  if (content) lines.push("-H 'Content-Type: application/json'", `-d '${exampleOf(path, content).replaceAll("'", "'\\''")}'`);
  return lines.join(" \\\n  ");
}

function operationOf(method, path, operation) {
  const content = operation.requestBody?.content?.["application/json"];
  const schema = content?.schema;
  const responses = Object.entries(operation.responses).map(([status, given]) => {
    const { found } = resolved(given);
    const kinds = Object.entries(found.content ?? {}).map(([media, { schema: shape, "x-itemSchema": item }]) =>
      h("div", { class: "media" }, h("span", { class: "type" }, media), resolved(item ?? shape).found.properties ? unfolding(typeOf(item ?? shape), () => fieldsOf(item ?? shape)) : null));
    return [h("dt", {}, h("code", {}, status)), h("dd", {}, found.description, kinds)];
  });
  const command = curlOf(method, path, content);
  return h("section", { class: "operation", id: operation.operationId, "aria-labelledby": operation.operationId + "-name" },
    h("h3", { id: operation.operationId + "-name" }, h("span", { class: "method " + method }, method.toUpperCase()), " ", h("code", {}, path)),
    h("p", { class: "summary" }, operation.summary + "."),
    operation.description ? h("p", {}, operation.description) : null,
    (operation.parameters ?? []).length ? [h("h4", {}, "Parameters"), h("dl", { class: "fields" }, operation.parameters.map((one) => [
      h("dt", {}, h("code", {}, one.name), one.required ? h("span", { class: "needed" }, "required") : null), h("dd", {}, h("span", { class: "type" }, `${typeOf(one.schema)} in the ${one.in}`), one.description ? h("p", {}, one.description) : null)]))] : null,
    schema ? unfolding("Fields of the body", () => fieldsOf(schema)) : null,
    unfolding("Answers", () => h("dl", { class: "fields" }, responses)),
    unfolding("curl", () => h("figure", { class: "code" }, h("figcaption", {}, h("span", {}, "shell"), copyButton("Copy", () => command)), h("pre", { tabindex: "0" }, h("code", {}, highlight("sh", command))))),
    unfolding("Try it", () => tryIt(method, path, content)));
}

function show() {
  const groups = new Map(document_.tags.map(({ name }) => [name, []]));
  for (const [path, item] of Object.entries(document_.paths)) {
    for (const method of METHODS) {
      if (!item[method]) continue;
      const tag = item[method].tags?.[0] ?? "Server";
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push([method, path, item[method]]);
    }
  }
  $("introduction").textContent = document_.info.description;
  for (const [tag, operations] of groups) {
    if (!operations.length) continue;
    const about = document_.tags.find(({ name }) => name === tag)?.description ?? "";
    $("routes").append(h("section", { class: "group" }, h("h2", {}, tag), h("p", {}, about), operations.map((one) => operationOf(...one))));
    $("contents").append(h("div", { class: "group" }, h("h2", {}, tag), h("ul", {}, operations.map(([method, path, { operationId }]) =>
      h("li", { dataset: { path } }, h("a", { href: "#" + operationId }, h("span", { class: "method " + method }, method.toUpperCase()), path))))));
  }
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

$("filter").addEventListener("input", () => {
  const wanted = $("filter").value.trim().toLowerCase();
  for (const item of document.querySelectorAll("#contents li")) item.hidden = !item.dataset.path.toLowerCase().includes(wanted);
  for (const group of document.querySelectorAll("#contents .group")) group.hidden = !group.querySelector("li:not([hidden])");
});

document.documentElement.dataset.theme = readSettings().theme ?? "auto";
try {
  document_ = await (await fetch("openapi.json", { cache: "no-cache" })).json();
  show();
} catch (error) {
  $("introduction").textContent = `The description cannot be read: ${error.message}`;
}
