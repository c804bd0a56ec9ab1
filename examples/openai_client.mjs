// The official OpenAI client for JavaScript: chat, a stream, a tool call, a parsed answer.
//
//     npm install openai
//     node examples/openai_client.mjs [http://127.0.0.1:8000]

import OpenAI from "openai";

const address = process.argv[2] ?? process.env.OPENAI_BASE_URL ?? "http://127.0.0.1:8000";
const client = new OpenAI({ baseURL: address.replace(/\/v1$/, "") + "/v1", apiKey: "none" });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "Name three colours." }];

const answer = await client.chat.completions.create({
  model,
  messages,
  temperature: 0,
  max_tokens: 24,
});
console.log("whole:   ", answer.choices[0].message.content);

const stream = client.chat.completions.stream({ model, messages, temperature: 0, max_tokens: 24 });
let text = "";
stream.on("content", (piece) => (text += piece));
await stream.finalChatCompletion();
console.log("streamed:", text);

const colour = { type: "string", enum: ["red", "green", "blue"] };
const schema = {
  type: "object",
  properties: { colour },
  required: ["colour"],
  additionalProperties: false,
};
const called = await client.chat.completions.create({
  model,
  messages: [{ role: "user", content: "Paint the wall blue." }],
  temperature: 0,
  tools: [{ type: "function", function: { name: "paint", parameters: schema } }],
  tool_choice: { type: "function", function: { name: "paint" } },
});
const call = called.choices[0].message.tool_calls[0].function;
console.log("call:    ", call.name, JSON.parse(call.arguments));

const parsed = await client.chat.completions.parse({
  model,
  messages: [{ role: "user", content: "Which colour has grass?" }],
  temperature: 0,
  response_format: { type: "json_schema", json_schema: { name: "answer", strict: true, schema } },
});
console.log("parsed:  ", parsed.choices[0].message.parsed);

const response = await client.responses.create({
  model,
  input: "Say hello.",
  temperature: 0,
  max_output_tokens: 16,
});
console.log("response:", response.output_text);
