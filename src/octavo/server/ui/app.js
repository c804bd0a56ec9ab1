// The chat page: holds the conversation that is shown, sends, stops, and ties the parts together.

import { h, icon, say, download } from "./dom.js";
import { ApiError, getJson } from "./api.js";
import { receiveAnswer } from "./answer.js";
import { addMessage, checked, leafOf, markdownOf, messagesOf, newConversation, pathOf, showVersion } from "./conversation.js";
import { Conversations, readKey, readSettings, writeKey, writeSettings } from "./store.js";
import { parametersOf, SettingsPanel } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { Thread } from "./messages.js";
import { Layout } from "./layout.js";

const STARTERS = [
  "Explain how a paged KV cache works, to a curious teenager",
  "Write a Python function that merges overlapping intervals, with tests",
  "Compare tea and coffee in a table with three rows",
  "Give me five calm names for a small bookshop",
];
const LONGEST_WAIT_S = 3;

const $ = (id) => document.getElementById(id);
const store = new Conversations();
const settings = readSettings();
const running = new Map(); // id of a conversation -> AbortController
let access = readKey();
let server = null; // /v1/capabilities
let current = newConversation();

const layout = new Layout(settings, () => writeSettings(settings));
const thread = new Thread($("thread"), {
  edit: (node, text) => ask(text, node.parent),
  retry: (node) => answer(node.parent),
  showVersion: (node, step) => { showVersion(current, node, step); store.save(current); show(); },
  answerCall,
});
const sidebar = new Sidebar($("conversations"), $("filter"), {
  choose, remove,
  rename: async (id, title) => { store.all.get(id).title = title; await store.save(store.all.get(id)); show(); },
  exportOne: (id) => exportOne(store.all.get(id)),
});
const panel = new SettingsPanel($("settings-body"), settings, {
  onChange: writeSettings,
  onSystem: (text) => { current.system = text; settings.system = text; writeSettings(settings); if (store.all.has(current.id)) store.saveSoon(current); },
  onKey: (key, isKept) => { access = { key, isKept }; writeKey(key, isKept); connect(); },
});

/** Show the current conversation. */
function show() {
  const isEmpty = !pathOf(current).length;
  $("welcome").hidden = !isEmpty;
  $("heading").textContent = current.title || "New conversation";
  document.title = current.title ? `${current.title} · Octavo` : "Octavo";
  panel.showSystem(current.system);
  thread.show(current);
  sidebar.show(store.list(), current.id);
  showComposer();
  layout.follow();
}

function showComposer() {
  const isRunning = running.has(current.id);
  const button = $("send");
  button.replaceChildren(icon(isRunning ? "stop" : "send"));
  button.setAttribute("aria-label", isRunning ? "Stop" : "Send");
  button.title = isRunning ? "Stop (Esc)" : "Send (Enter)";
  button.classList.toggle("running", isRunning);
  button.disabled = !isRunning && (!$("prompt").value.trim() || !server);
  const stats = pathOf(current).findLast((node) => node.stats?.isExact)?.stats;
  const room = server?.limits?.max_model_len;
  $("context").textContent = stats && room ? `${(stats.promptTokens + stats.tokens).toLocaleString("en")} of ${room.toLocaleString("en")} tokens` : "";
}

function notice(text) {
  $("notice").textContent = text ?? "";
  $("notice").hidden = !text;
}

/** Add a question below the message `parent`, and have it answered. */
function ask(text, parent = leafOf(current).id) {
  if (running.has(current.id)) return;
  const question = addMessage(current, parent, { role: "user", content: text });
  answer(question.id);
}

/** Have the conversation continued below the message `parent`. */
async function answer(parent) {
  const conversation = current;
  if (running.has(conversation.id)) return;
  if (!server) {
    store.save(conversation);
    show();
    notice("The server is not ready yet; try again in a moment.");
    return;
  }
  let body;
  try {
    body = { model: settings.model, ...parametersOf(settings), messages: messagesOf(conversation, parent) };
  } catch (error) {
    layout.openSettings();
    notice(error.message);
    return;
  }
  notice(null);
  const node = addMessage(conversation, parent, { role: "assistant", content: "", model: settings.model, isComing: true });
  const controller = new AbortController();
  running.set(conversation.id, controller);
  layout.toEnd();
  store.save(conversation);
  show();
  say("The assistant is answering.");
  const onGrowth = () => { store.saveSoon(conversation); if (conversation === current) thread.grow(node, () => layout.follow()); };
  body = { ...body, stream: true, stream_options: { include_usage: true } };
  await receiveAnswer(node, body, { key: access.key, signal: controller.signal, onGrowth });
  running.delete(conversation.id);
  await store.save(conversation);
  ended(node, conversation);
}

function ended(node, conversation) {
  if (conversation === current) show();
  else sidebar.show(store.list(), current.id);
  if (node.error?.status === 401) askForKey();
  else if (!node.error) say(node.finish === "stopped" ? "Stopped." : `Answer: ${node.content.slice(0, 2000)}`);
}

/** The result of a call; once all calls have theirs the model goes on. */
function answerCall(node, call, text) {
  const leaf = leafOf(current);
  const result = addMessage(current, leaf.id, { role: "tool", content: text, callId: call.id });
  const path = pathOf(current);
  const given = new Set(path.filter((one) => one.role === "tool").map((one) => one.callId));
  if (node.calls.every((one) => given.has(one.id))) answer(result.id);
  else { store.save(current); show(); }
}

function stop() {
  running.get(current.id)?.abort();
}

function startNew() {
  current = newConversation(settings.system ?? "");
  notice(null);
  show();
  layout.closeSidebarOnPhone();
  $("prompt").focus();
}

function choose(id) {
  current = store.all.get(id);
  settings.last = id;
  writeSettings(settings);
  notice(null);
  layout.toEnd();
  show();
  layout.closeSidebarOnPhone();
}

async function remove(id) {
  const gone = store.all.get(id);
  running.get(id)?.abort();
  await store.remove(id);
  if (current === gone) startNew();
  else show();
  layout.toast(`Deleted “${gone.title || "New conversation"}”.`, "Undo", async () => { await store.save(gone); choose(id); });
}

function exportOne(conversation) {
  const name = (conversation.title || "conversation").replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").toLowerCase() || "conversation";
  layout.toast("Export as", "Markdown", () => download(`${name}.md`, markdownOf(conversation), "text/markdown"),
    "JSON", () => download(`${name}.json`, JSON.stringify([conversation], null, 2), "application/json"));
}

async function importFile(file) {
  try {
    const given = JSON.parse(await file.text());
    const found = (Array.isArray(given) ? given : [given]).map(checked);
    for (const one of found) await store.save(one);
    show();
    layout.toast(`${found.length} ${found.length === 1 ? "conversation" : "conversations"} imported.`);
  } catch (error) {
    layout.toast(`This file cannot be imported: ${error.message}`);
  }
}

function askForKey() {
  panel.showKey(access, true);
  layout.openSettings();
  panel.focusKey();
  notice(access.key ? "The server does not take this API key." : "The server asks for an API key.");
}

/** Learn what the server can; try again while it loads. */
async function connect() {
  try {
    server = await getJson("v1/capabilities", { key: access.key });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    server = null;
    showComposer();
    if (error.status === 401) { askForKey(); return; }
    $("served").textContent = error.message;
    setTimeout(connect, 1000 * Math.min(error.retryAfterS ?? LONGEST_WAIT_S, LONGEST_WAIT_S));
    return;
  }
  notice(null);
  if (!server.models.includes(settings.model)) settings.model = server.models[0];
  $("model").replaceChildren(...server.models.map((name) => h("option", { value: name }, name)));
  $("model").value = settings.model;
  $("model").hidden = server.models.length < 2;
  $("served").textContent = server.models.length < 2 ? server.models[0].split("/").at(-1) : "";
  $("served").title = server.models[0];
  panel.showCapabilities(server);
  panel.showKey(access, server.auth.is_required);
  $("docs").hidden = !server.docs;
  showComposer();
}

function bind() {
  for (const element of document.querySelectorAll("[data-icon]")) element.prepend(icon(element.dataset.icon));
  const prompt = $("prompt");
  prompt.addEventListener("input", showComposer);
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); $("composer").requestSubmit(); }
    if (event.key === "ArrowUp" && !prompt.value) { const last = pathOf(current).findLast((node) => node.role === "user"); if (last) { event.preventDefault(); thread.edit(last); } }
  });
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    if (running.has(current.id)) { if (event.submitter) stop(); return; }
    const text = prompt.value.trim();
    if (!text || !server) return;
    prompt.value = "";
    ask(text);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !layout.closeTop()) stop();
    if (event.shiftKey && (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "o") { event.preventDefault(); startNew(); }
  });
  $("new").addEventListener("click", startNew);
  $("model").addEventListener("change", () => { settings.model = $("model").value; writeSettings(settings); });
  $("export-all").addEventListener("click", () => download("octavo-conversations.json", JSON.stringify(store.list(), null, 2), "application/json"));
  $("import").addEventListener("click", () => $("import-file").click());
  $("import-file").addEventListener("change", () => { const [file] = $("import-file").files; $("import-file").value = ""; if (file) importFile(file); });
  $("starters").append(...STARTERS.map((text) => h("li", {}, h("button", { type: "button", onclick: () => { prompt.value = text; showComposer(); prompt.focus(); } }, text))));
  addEventListener("pagehide", () => { for (const id of running.keys()) store.save(store.all.get(id)); });
}

async function begin() {
  bind();
  await store.open();
  for (const one of store.list()) { // an answer that was coming when the page was closed
    for (const node of Object.values(one.nodes)) if (node.isComing) { delete node.isComing; node.finish = "stopped"; }
  }
  current = store.all.get(settings.last) ?? store.list()[0] ?? newConversation(settings.system ?? "");
  if (!store.isKept) $("hint").textContent = "This browser keeps no data for this page: conversations end with it.";
  show();
  layout.toEnd();
  await connect();
  if (!layout.isNarrow && document.activeElement === document.body) $("prompt").focus();
}

begin();
