"""Chat with the official OpenAI client: whole, streamed, several choices, logprobs.

pip install openai
python examples/openai_chat.py [http://127.0.0.1:8000]
"""

import os
import sys

from openai import OpenAI

address = [*sys.argv[1:], os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000")][0]
client = OpenAI(base_url=address.removesuffix("/v1") + "/v1", api_key="none")
model = client.models.list().data[0].id
question = [
    {"role": "system", "content": "Answer in one short sentence."},
    {"role": "user", "content": "Why is the sky blue?"},
]

answer = client.chat.completions.create(
    model=model, messages=question, temperature=0, max_tokens=32
)
print("whole:   ", answer.choices[0].message.content)

print("streamed:", end=" ")
stream = client.chat.completions.create(
    model=model,
    messages=question,
    temperature=0,
    max_tokens=32,
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    if chunk.usage:
        print(f"\nusage:    {chunk.usage.prompt_tokens} in, {chunk.usage.completion_tokens} out")

several = client.chat.completions.create(model=model, messages=question, n=3, seed=1, max_tokens=12)
for choice in several.choices:
    print(f"choice {choice.index}:", choice.message.content)

# What vLLM adds to the API goes into extra_body, as with vLLM.
likely = client.chat.completions.create(
    model=model,
    messages=question,
    max_tokens=1,
    logprobs=True,
    top_logprobs=3,
    extra_body={"top_k": 1},
)
for token in likely.choices[0].logprobs.content[0].top_logprobs:
    print(f"logprob:  {token.token!r} {token.logprob:.3f}")
