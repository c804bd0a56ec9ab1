// The thread: messages as elements, and the one that grows. Knows no server and keeps nothing.

import { h, icon, iconButton, copyButton } from "./dom.js";
import { pathOf, versionOf } from "./conversation.js";
import { renderMarkdown } from "./markdown.js";

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const FINISH = { length: "cut at the limit of tokens", stopped: "stopped", abort: "cut off by the server", content_filter: "filtered" };

export class Thread {
  /** `actions`: edit(node, text), retry(node), showVersion(node, step), answerCall(node, call, text). */
  constructor(container, actions) {
    this._container = container;
    this._actions = actions;
    this._views = new Map(); // id of a message -> its view
    this._pending = null; // frame that will show the growth
  }

  /** Show a conversation; elements of messages that stay are kept. */
  show(conversation) {
    this._conversation = conversation;
    const path = pathOf(conversation);
    const views = path.map((node) => this._views.get(node.id) ?? this._viewOf(node));
    this._views = new Map(path.map((node, place) => [node.id, views[place]]));
    const elements = views.map((view) => view.element);
    if (elements.length !== this._container.children.length || elements.some((one, place) => one !== this._container.children[place])) {
      this._container.replaceChildren(...elements);
    }
    for (const view of views) view.refresh();
  }

  /** A message has grown; it is shown in the next frame. */
  grow(node, afterwards) {
    if (this._pending) return;
    this._pending = requestAnimationFrame(() => {
      this._pending = null;
      this._views.get(node.id)?.refresh();
      afterwards();
    });
  }

  /** Let a question be edited in its place. */
  edit(node) {
    this._views.get(node.id)?.edit?.();
  }

  _viewOf(node) {
    const context = { actions: this._actions, version: () => versionOf(this._conversation, node), path: () => pathOf(this._conversation) };
    if (node.role === "user") return new Question(node, context);
    if (node.role === "tool") return new ToolResult(node, context);
    return new Answer(node, context);
  }
}

function versionSwitch(node, { actions, version }) {
  const { place, count } = version();
  if (count < 2) return [];
  const move = (name, label, step, isEnd) => iconButton(name, label, () => actions.showVersion(node, step), { disabled: isEnd });
  return [h("span", { class: "versions", role: "group", "aria-label": "Versions" },
    move("left", "Earlier version", -1, place === 0), h("span", {}, `${place + 1} / ${count}`), move("right", "Later version", 1, place === count - 1))];
}

class Question {
  constructor(node, context) {
    this._node = node;
    this._context = context;
    this._bubble = h("div", { class: "bubble" }, node.content);
    this._tools = h("footer", { class: "message-tools" });
    this.element = h("article", { class: "message user", "aria-label": "You" }, this._bubble, this._tools);
  }

  refresh() {
    if (this._editor) return;
    this._tools.replaceChildren(...versionSwitch(this._node, this._context),
      iconButton("edit", "Edit and send again", () => this.edit()), copyButton("Copy", () => this._node.content));
  }

  edit() {
    if (this._editor) return;
    const area = h("textarea", { "aria-label": "Edit your message", value: this._node.content, rows: Math.min(12, this._node.content.split("\n").length + 1) });
    const close = () => { this._editor.replaceWith(this._bubble); this._editor = null; this.refresh(); };
    const send = () => { const text = area.value; if (!text.trim()) return; close(); this._context.actions.edit(this._node, text); };
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { event.stopPropagation(); close(); }
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    });
    this._editor = h("div", { class: "editor" }, area, h("div", { class: "editor-buttons" },
      h("button", { type: "button", class: "quiet", onclick: close }, "Cancel"),
      h("button", { type: "button", class: "primary", onclick: send }, "Send")));
    this._bubble.replaceWith(this._editor);
    this._tools.replaceChildren();
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}

class ToolResult {
  constructor(node) {
    this.element = h("article", { class: "message tool", "aria-label": "Tool result" },
      h("header", {}, icon("tool"), "Result"), h("pre", { tabindex: "0" }, node.content));
  }

  refresh() {}
}

class Answer {
  constructor(node, context) {
    this._node = node;
    this._context = context;
    this._summary = h("summary", {});
    this._thoughts = h("div", { class: "prose small" });
    this._reasoning = h("details", { class: "reasoning", hidden: true }, this._summary, this._thoughts);
    this._prose = h("div", { class: "prose" });
    this._calls = h("div", { class: "calls" });
    this._error = h("p", { class: "problem", role: "alert", hidden: true });
    this._stats = h("span", { class: "stats" });
    this._buttons = h("span", { class: "buttons" });
    this.element = h("article", { class: "message assistant", "aria-label": "Assistant" }, this._reasoning, this._prose, this._calls, this._error,
      h("footer", { class: "message-tools" }, this._buttons, this._stats));
  }

  refresh() {
    const node = this._node;
    this.element.classList.toggle("coming", Boolean(node.isComing));
    this.element.classList.toggle("empty", Boolean(node.isComing && !node.content && !node.reasoning));
    this.element.setAttribute("aria-busy", String(Boolean(node.isComing)));
    this._showReasoning(node);
    renderMarkdown(this._prose, node.content);
    this._showCalls(node);
    this._error.hidden = !node.error;
    if (node.error) this._error.textContent = node.error.message;
    this._stats.textContent = statsText(node);
    this._buttons.replaceChildren(...(node.isComing ? [] : [
      ...versionSwitch(node, this._context),
      copyButton("Copy answer", () => node.content),
      iconButton("retry", "Answer again", () => this._context.actions.retry(node)),
    ]));
  }

  _showReasoning(node) {
    this._reasoning.hidden = !node.reasoning;
    if (!node.reasoning) return;
    const isThinking = node.isComing && !node.content && !node.calls;
    if (isThinking !== this._wasThinking) this._reasoning.open = Boolean(isThinking);
    this._wasThinking = isThinking;
    const seconds = (node.stats?.thoughtMs ?? 0) / 1000;
    this._summary.textContent = isThinking ? "Thinking…" : `Thought for ${NUMBER.format(seconds)} s`;
    renderMarkdown(this._thoughts, node.reasoning);
  }

  _showCalls(node) {
    const calls = node.calls ?? [];
    const path = this._context.path();
    const answered = new Set(path.filter((one) => one.role === "tool").map((one) => one.callId));
    const state = JSON.stringify([calls, [...answered], node.isComing]);
    if (state === this._shownCalls) return;
    this._shownCalls = state;
    this._calls.replaceChildren(...calls.filter(Boolean).map((call) => this._callCard(node, call, answered.has(call.id))));
  }

  _callCard(node, call, isAnswered) {
    const card = h("section", { class: "call", "aria-label": `Call of ${call.function.name}` },
      h("header", {}, icon("tool"), h("code", {}, call.function.name)),
      h("pre", { tabindex: "0" }, pretty(call.function.arguments)));
    if (!isAnswered && !node.isComing) {
      const area = h("textarea", { rows: 2, class: "mono", "aria-label": `Result of ${call.function.name}`, placeholder: "What the function returns…" });
      const send = () => this._context.actions.answerCall(node, call, area.value);
      card.append(area, h("div", { class: "editor-buttons" }, h("button", { type: "button", class: "primary", onclick: send }, "Give the result")));
    }
    return card;
  }
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Tokens, time to the first, speed, and how it ended when that is not the usual way. */
function statsText(node) {
  const { tokens, isExact, ttftMs, tokensPerS } = node.stats ?? {};
  const parts = [];
  if (tokens) parts.push(`${isExact ? "" : "≈ "}${NUMBER.format(tokens)} ${tokens === 1 ? "token" : "tokens"}`);
  if (ttftMs !== undefined) parts.push(`first after ${ttftMs < 1000 ? Math.round(ttftMs) + " ms" : NUMBER.format(ttftMs / 1000) + " s"}`);
  if (tokensPerS) parts.push(`${NUMBER.format(tokensPerS)} tokens/s`);
  if (!node.isComing && FINISH[node.finish]) parts.push(FINISH[node.finish]);
  return parts.join("  ·  ");
}
