"""Tool calls with the official OpenAI client: the call, its result, and a streamed call.

    pip install openai
    python examples/openai_tools.py [http://127.0.0.1:8000]

`tool_choice` names the tool, so that models that were never trained to call one do it as well: the
grammar of the call is enforced while it is written. With "auto" the model decides.
"""

import json
import os
import sys

from openai import OpenAI

address = [*sys.argv[1:], os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000")][0]
client = OpenAI(base_url=address.removesuffix("/v1") + "/v1", api_key="none")
model = client.models.list().data[0].id
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city, now.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 30},
                "unit": {"enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
CHOICE = {"type": "function", "function": {"name": "get_weather"}}


def get_weather(city: str, unit: str) -> str:
    """A tool that knows one answer."""
    return f"12 degrees {unit} and rain in {city}"


messages = [{"role": "user", "content": "What is the weather in Paris, in celsius?"}]
asked = {"model": model, "messages": messages, "tools": [WEATHER], "temperature": 0}

message = client.chat.completions.create(**asked, tool_choice=CHOICE).choices[0].message
call = message.tool_calls[0]
print("call:    ", call.function.name, json.loads(call.function.arguments))

with client.chat.completions.stream(**asked, tool_choice=CHOICE) as stream:
    for event in stream:
        if event.type == "tool_calls.function.arguments.done":
            print("streamed:", event.name, json.loads(event.arguments))

result = get_weather(**json.loads(call.function.arguments))
messages += [message, {"role": "tool", "tool_call_id": call.id, "content": result}]
answer = client.chat.completions.create(
    model=model, messages=messages, temperature=0, max_tokens=40
)
print("result:  ", result)
print("answer:  ", answer.choices[0].message.content)
