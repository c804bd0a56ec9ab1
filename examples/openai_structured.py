"""Structured answers with the official OpenAI client: a pydantic class, a choice, a regex.

pip install openai
python examples/openai_structured.py [http://127.0.0.1:8000]
"""

import os
import sys
from typing import Annotated, Literal

from openai import OpenAI
from pydantic import BaseModel, Field

address = [*sys.argv[1:], os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000")][0]
client = OpenAI(base_url=address.removesuffix("/v1") + "/v1", api_key="none")
model = client.models.list().data[0].id


class Person(BaseModel):
    """What should be read out of a text."""

    name: Annotated[str, Field(max_length=30)]
    age: Annotated[int, Field(ge=0, le=120)]
    mood: Literal["glad", "sad", "angry"]


text = "Extract the person: Ada is 36 years old and very glad today."
messages = [{"role": "user", "content": text}]

parsed = client.chat.completions.parse(
    model=model, messages=messages, response_format=Person, temperature=0
)
print("parsed:  ", repr(parsed.choices[0].message.parsed))

with client.chat.completions.stream(
    model=model, messages=messages, response_format=Person, temperature=0
) as stream:
    print("streamed:", repr(stream.get_final_completion().choices[0].message.parsed))

# Other forms are vLLM's `structured_outputs`.
for form in ({"choice": ["glad", "sad"]}, {"regex": "[1-9][0-9]? years"}):
    answer = client.chat.completions.create(
        model=model, messages=messages, temperature=0, extra_body={"structured_outputs": form}
    )
    print(f"{next(iter(form))}:".ljust(9), answer.choices[0].message.content)
