// The server's API from the page: one error type, JSON answers, and streams of events. Paths are
// relative to the page, so that a proxy may put the server anywhere.

/** An answer that is an error. `status` 0: the server was not reached. */
export class ApiError extends Error {
  constructor(status, message, retryAfterS = null) {
    super(message);
    this.status = status;
    this.retryAfterS = retryAfterS;
  }
}

async function send(path, { key, body, signal }) {
  const headers = body ? { "Content-Type": "application/json" } : {};
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, signal, body: body && JSON.stringify(body), cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached.");
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

async function errorOf(response) {
  let message = `The server answered with status ${response.status}.`;
  try {
    const { error } = await response.json();
    message = error?.message ?? message;
  } catch { /* not JSON: the status must do */ }
  return new ApiError(response.status, message, Number(response.headers.get("retry-after")) || null);
}

/** A JSON answer. Throws ApiError. */
export async function getJson(path, options = {}) {
  return (await send(path, options)).json();
}

/** The chunks of a streamed chat. Throws ApiError, also for an error in the middle of the stream. */
export async function* streamChat(body, options) {
  const response = await send("v1/chat/completions", { ...options, body });
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.code || 500, chunk.error.message);
    yield chunk;
  }
  throw new ApiError(0, "The connection ended before the answer did.");
}

/** The data of each event. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const data = part.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
        if (data.length) yield data.join("\n");
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
