// A conversation as a tree: an edit or another try is a sibling, and nothing is lost. Pure data, which
// the store keeps as it is. Knows neither the page nor the server.

const ROOT = "root";

/** An id that is unique here; randomUUID exists only on secure pages. */
export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** An empty conversation with a system prompt. */
export function newConversation(system = "") {
  const now = Date.now();
  return { id: newId(), title: "", system, created: now, updated: now, nodes: { [ROOT]: { id: ROOT, parent: null, children: [], active: 0 } } };
}

/** The last node that is shown; the root where nothing is. */
export function leafOf(conversation) {
  let node = conversation.nodes[ROOT];
  while (node.children.length) node = conversation.nodes[node.children[node.active]];
  return node;
}

/** The shown messages, from the first to the last, or to the one with the id `until`. */
export function pathOf(conversation, until = null) {
  const path = [];
  let node = conversation.nodes[ROOT];
  while (node.children.length && node.id !== until) {
    node = conversation.nodes[node.children[node.active]];
    path.push(node);
  }
  return path;
}

/** Add a message below the node `parent`, and show it. Fields: role, content, and whatever it has. */
export function addMessage(conversation, parent, fields) {
  const node = { id: newId(), parent, children: [], active: 0, created: Date.now(), ...fields };
  const above = conversation.nodes[parent];
  above.children.push(node.id);
  above.active = above.children.length - 1;
  conversation.nodes[node.id] = node;
  conversation.updated = Date.now();
  if (!conversation.title && node.role === "user") conversation.title = titleOf(node.content);
  return node;
}

/** {place, count} of a message among its versions, from 0. */
export function versionOf(conversation, node) {
  const siblings = conversation.nodes[node.parent].children;
  return { place: siblings.indexOf(node.id), count: siblings.length };
}

/** Show the version that is `step` further. */
export function showVersion(conversation, node, step) {
  const above = conversation.nodes[node.parent];
  above.active = Math.max(0, Math.min(above.children.length - 1, above.active + step));
}

/** The messages as /v1/chat/completions takes them. Thoughts stay here. */
export function messagesOf(conversation, until = null) {
  const messages = conversation.system.trim() ? [{ role: "system", content: conversation.system }] : [];
  for (const node of pathOf(conversation, until)) {
    if (node.role === "tool") messages.push({ role: "tool", tool_call_id: node.callId, content: node.content });
    else if (node.calls?.length) messages.push({ role: node.role, content: node.content || null, tool_calls: node.calls });
    else messages.push({ role: node.role, content: node.content });
  }
  return messages;
}

/** The first line of a text, short enough for a list. */
export function titleOf(text) {
  const line = text.trim().split("\n", 1)[0].replace(/\s+/g, " ");
  return line.length > 60 ? line.slice(0, 57).trimEnd() + "…" : line;
}

/** The shown messages as a Markdown document. */
export function markdownOf(conversation) {
  const names = { user: "You", assistant: "Assistant", tool: "Tool" };
  const parts = [`# ${conversation.title || "Conversation"}`];
  if (conversation.system.trim()) parts.push(`> ${conversation.system.trim().replace(/\n/g, "\n> ")}`);
  for (const node of pathOf(conversation)) {
    parts.push(`## ${names[node.role]}`, node.content);
    for (const call of node.calls ?? []) parts.push("```json\n" + JSON.stringify(call.function, null, 2) + "\n```");
  }
  return parts.join("\n\n") + "\n";
}

/** A conversation read from a file, under an id of its own. Throws for what is none. */
export function checked(given) {
  const isText = (value) => typeof value === "string";
  const isNode = (node) => node && isText(node.id) && Array.isArray(node.children) && node.children.every((id) => given.nodes[id]?.parent === node.id)
    && (node.id === ROOT || (["user", "assistant", "tool"].includes(node.role) && isText(node.content)));
  const isFine = given && isText(given.title) && isText(given.system) && given.nodes?.[ROOT]
    && Object.entries(given.nodes).every(([id, node]) => isNode(node) && node.id === id);
  if (!isFine) throw new Error("this is no conversation of Octavo");
  for (const node of Object.values(given.nodes)) {
    node.active = Math.max(0, Math.min(node.children.length - 1, Number(node.active) || 0));
    if (!Array.isArray(node.calls)) delete node.calls;
  }
  return { id: newId(), title: given.title, system: given.system, created: Number(given.created) || Date.now(), updated: Number(given.updated) || Date.now(), nodes: given.nodes };
}
