// One answer that comes: chunks grow a message of the conversation, with its times and counts.
// Knows no elements; whoever shows the message is told when it has grown.

import { streamChat } from "./api.js";

/**
 * Let the server continue; `node` is the empty message that receives the answer.
 *
 * The node gets `content`, `reasoning`, `calls`, `finish`, `error`, and `stats`: {promptTokens, tokens,
 * isExact, ttftMs, totalMs, tokensPerS, thoughtMs}. Stopping is no error: what came stays.
 */
export async function receiveAnswer(node, body, { key, signal, onGrowth }) {
  const clock = { began: performance.now(), first: null, last: null, thought: null };
  node.stats = { tokens: 0, isExact: false };
  try {
    for await (const chunk of streamChat(body, { key, signal })) {
      take(node, chunk, clock);
      onGrowth();
    }
  } catch (error) {
    if (error.name === "AbortError") node.finish = "stopped";
    else node.error = { status: error.status ?? 0, message: error.message };
  }
  node.stats.totalMs = performance.now() - clock.began;
  measure(node.stats, clock);
  delete node.isComing;
  onGrowth();
}

function take(node, chunk, clock) {
  if (chunk.usage) {
    Object.assign(node.stats, { promptTokens: chunk.usage.prompt_tokens, tokens: chunk.usage.completion_tokens, isExact: true });
  }
  const choice = chunk.choices?.[0];
  if (!choice) return;
  const { content, reasoning, tool_calls: calls } = choice.delta ?? {};
  if (content || reasoning || calls?.length) {
    const now = performance.now();
    clock.first ??= now;
    clock.last = now;
    if (!node.stats.isExact) node.stats.tokens += 1; // a chunk is about a token, until the usage comes
    if (reasoning) clock.thought = now;
  }
  if (reasoning) node.reasoning = (node.reasoning ?? "") + reasoning;
  if (content) node.content += content;
  for (const call of calls ?? []) addCall(node, call);
  if (choice.finish_reason) node.finish = choice.finish_reason;
  measure(node.stats, clock);
}

/** A piece of a call: its arguments may come in several. */
function addCall(node, { index, id, function: named }) {
  node.calls ??= [];
  const call = (node.calls[index] ??= { id, type: "function", function: { name: "", arguments: "" } });
  call.function.name += named?.name ?? "";
  call.function.arguments += named?.arguments ?? "";
}

function measure(stats, { began, first, last, thought }) {
  if (first === null) return;
  stats.ttftMs = first - began;
  if (thought !== null) stats.thoughtMs = thought - began;
  if (stats.tokens > 1 && last > first) stats.tokensPerS = ((stats.tokens - 1) * 1000) / (last - first);
}
