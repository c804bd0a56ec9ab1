"""LiteLLM, by way of its provider `hosted_vllm`: a chat, a stream, a tool call, a text.

pip install litellm
python examples/litellm_chat.py [http://127.0.0.1:8000]
"""

import json
import os
import sys

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it fetches a price list

import litellm
from openai import OpenAI

address = [*sys.argv[1:], os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000")][0]
base_url = address.removesuffix("/v1") + "/v1"
name = OpenAI(base_url=base_url, api_key="none").models.list().data[0].id
server = {"api_base": base_url, "api_key": "none", "temperature": 0}
messages = [{"role": "user", "content": "Name three colours."}]
paint = {
    "type": "function",
    "function": {
        "name": "paint",
        "parameters": {
            "type": "object",
            "properties": {"colour": {"enum": ["red", "green", "blue"]}},
            "required": ["colour"],
            "additionalProperties": False,
        },
    },
}

answer = litellm.completion(f"hosted_vllm/{name}", messages, max_tokens=24, **server)
print("whole:   ", answer.choices[0].message.content)

print("streamed:", end=" ")
for chunk in litellm.completion(
    f"hosted_vllm/{name}", messages, max_tokens=24, stream=True, **server
):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()

called = litellm.completion(
    f"hosted_vllm/{name}",
    [{"role": "user", "content": "Paint the wall blue."}],
    tools=[paint],
    tool_choice={"type": "function", "function": {"name": "paint"}},
    **server,
)
call = called.choices[0].message.tool_calls[0].function
print("call:    ", call.name, json.loads(call.arguments))

text = litellm.text_completion(
    model=f"text-completion-openai/{name}", prompt="One, two,", max_tokens=6, **server
)
print("text:    ", text.choices[0].text)
