"""The Responses API with the official OpenAI client: events, a conversation, a parsed answer.

pip install openai
python examples/openai_responses.py [http://127.0.0.1:8000]
"""

import os
import sys
from typing import Literal

from openai import OpenAI
from pydantic import BaseModel

address = [*sys.argv[1:], os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000")][0]
client = OpenAI(base_url=address.removesuffix("/v1") + "/v1", api_key="none")
model = client.models.list().data[0].id


class Verdict(BaseModel):
    """An opinion in one word."""

    verdict: Literal["good", "bad"]


first = client.responses.create(
    model=model,
    instructions="Answer in one short sentence.",
    input="My name is Ada. Greet me.",
    temperature=0,
    max_output_tokens=24,
)
print("first:   ", first.output_text)

# The server keeps the conversation; the next turn names the one before it.
second = client.responses.create(
    model=model,
    previous_response_id=first.id,
    input="What is my name?",
    temperature=0,
    max_output_tokens=24,
)
print("second:  ", second.output_text)
print("kept:    ", client.responses.retrieve(second.id).previous_response_id == first.id)

print("events:  ", end=" ")
with client.responses.stream(
    model=model, input="Count to five.", temperature=0, max_output_tokens=24
) as stream:
    for event in stream:
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
        if event.type in ("response.completed", "response.incomplete"):
            print(f"\nusage:    {event.response.usage.total_tokens} tokens")

parsed = client.responses.parse(
    model=model, input="Is rain good or bad for a farmer?", text_format=Verdict, temperature=0
)
print("parsed:  ", repr(parsed.output_parsed))
for response in (first, second):
    client.responses.delete(response.id)
