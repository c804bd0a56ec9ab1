// The list of conversations: choose, rename, delete and bring back, export. Knows nothing of answers.

import { h, iconButton } from "./dom.js";

const DAY_MS = 86_400_000;

function periodOf(time) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (time >= midnight) return "Today";
  if (time >= midnight - DAY_MS) return "Yesterday";
  if (time >= midnight - 7 * DAY_MS) return "This week";
  return "Earlier";
}

export class Sidebar {
  /** `actions`: choose(id), rename(id, title), remove(id), exportOne(id). */
  constructor(list, filter, actions) {
    this._list = list;
    this._filter = filter;
    this._actions = actions;
    this._renaming = null;
    filter.addEventListener("input", () => this.show(this._conversations, this._current));
  }

  /** Show the conversations, the newest first, with the current one marked. */
  show(conversations, current) {
    this._conversations = conversations;
    this._current = current;
    if (this._renaming) return; // it is shown again when the name is settled
    const wanted = this._filter.value.trim().toLowerCase();
    this._filter.hidden = conversations.length < 6 && !wanted;
    const nodes = [];
    let period = null;
    for (const one of conversations) {
      if (wanted && !one.title.toLowerCase().includes(wanted)) continue;
      if (periodOf(one.updated) !== period) {
        period = periodOf(one.updated);
        nodes.push(h("li", { class: "period" }, period));
      }
      nodes.push(this._entry(one));
    }
    if (!nodes.length) nodes.push(h("li", { class: "empty" }, wanted ? "Nothing found" : "No conversations yet"));
    this._list.replaceChildren(...nodes);
  }

  _entry(one) {
    const title = one.title || "New conversation";
    const isCurrent = one.id === this._current;
    const row = h("li", { class: isCurrent ? "entry current" : "entry" },
      h("button", { type: "button", class: "title", title, "aria-current": isCurrent ? "page" : null, onclick: () => this._actions.choose(one.id), ondblclick: () => this._rename(row, one), onkeydown: (event) => { if (event.key === "F2") this._rename(row, one); } }, title),
      h("span", { class: "entry-tools" },
        iconButton("edit", `Rename “${title}”`, () => this._rename(row, one)),
        iconButton("export", `Export “${title}”`, () => this._actions.exportOne(one.id)),
        iconButton("trash", `Delete “${title}”`, () => this._actions.remove(one.id))));
    return row;
  }

  _rename(row, one) {
    const input = h("input", { class: "rename", value: one.title, "aria-label": "Name of the conversation", maxlength: 120 });
    const settle = (isKept) => {
      if (!this._renaming) return;
      this._renaming = null;
      const title = input.value.trim();
      if (isKept && title) this._actions.rename(one.id, title);
      else this.show(this._conversations, this._current);
    };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") settle(true);
      if (event.key === "Escape") { event.stopPropagation(); settle(false); }
    });
    input.addEventListener("blur", () => settle(true));
    this._renaming = one.id;
    row.replaceChildren(input);
    input.focus();
    input.select();
  }
}
