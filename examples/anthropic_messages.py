"""Anthropic's official client: a message, a stream, a tool call and its result, a count of tokens.

pip install anthropic
python examples/anthropic_messages.py [http://127.0.0.1:8000]
"""

import os
import sys

from anthropic import Anthropic

address = [*sys.argv[1:], os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000")][0]
client = Anthropic(base_url=address.removesuffix("/v1"), api_key="none")
model = client.models.list().data[0].id
GREEDY = {"temperature": 0}  # a field that newer clients no longer have a name for
question = {"role": "user", "content": "Why is the sea salty?"}
asked = {"model": model, "messages": [question], "max_tokens": 32, "extra_body": GREEDY}

count = client.messages.count_tokens(model=model, messages=[question])
print("tokens:  ", count.input_tokens)

message = client.messages.create(**asked, system="Answer in one short sentence.")
print("whole:   ", message.content[0].text)

print("streamed:", end=" ")
with client.messages.stream(**asked, system="Answer in one short sentence.") as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
    usage = stream.get_final_message().usage
print(f"\nusage:    {usage.input_tokens} in, {usage.output_tokens} out")

weather = {
    "name": "get_weather",
    "description": "The weather of a city, now.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 30}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
history = [{"role": "user", "content": "What is the weather in Oslo?"}]
called = client.messages.create(
    model=model,
    messages=history,
    tools=[weather],
    tool_choice={"type": "tool", "name": "get_weather"},
    max_tokens=64,
    extra_body=GREEDY,
)
call = next(block for block in called.content if block.type == "tool_use")
print("call:    ", call.name, call.input)

result = {"type": "tool_result", "tool_use_id": call.id, "content": "12 degrees and rain"}
history += [{"role": "assistant", "content": called.content}]
history += [{"role": "user", "content": [result]}]
answer = client.messages.create(
    model=model,
    messages=history,
    tools=[weather],
    tool_choice={"type": "none"},
    max_tokens=32,
    extra_body=GREEDY,
)
print("answer:  ", answer.stop_reason, [block.type for block in answer.content])
