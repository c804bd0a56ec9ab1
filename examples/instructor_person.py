"""Instructor: pydantic classes out of text, by way of tools and of JSON schemas.

pip install instructor
python examples/instructor_person.py [http://127.0.0.1:8000]
"""

import os
import sys
from typing import Annotated, Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel, ConfigDict, Field

address = [*sys.argv[1:], os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000")][0]
client = OpenAI(base_url=address.removesuffix("/v1") + "/v1", api_key="none")
model = client.models.list().data[0].id


class Person(BaseModel):
    """What should be read out of a text, and nothing more."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(max_length=30)]
    age: Annotated[int, Field(ge=0, le=120)]
    mood: Literal["glad", "sad", "angry"]


messages = [{"role": "user", "content": "Ada is 36 years old and very glad today."}]
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    patched = instructor.from_openai(client, mode=mode)
    person = patched.chat.completions.create(
        model=model, messages=messages, response_model=Person, temperature=0, max_retries=0
    )
    print(f"{mode.name}:", repr(person))

partial = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
pieces = partial.chat.completions.create_partial(
    model=model, messages=messages, response_model=Person, temperature=0
)
print("partial:", repr(list(pieces)[-1]))
