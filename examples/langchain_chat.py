"""LangChain's client for OpenAI: a chain, a stream, a batch, a bound tool, a structured answer.

pip install langchain-openai
python examples/langchain_chat.py [http://127.0.0.1:8000]
"""

import os
import sys
from typing import Literal

from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
from openai import OpenAI
from pydantic import BaseModel

address = [*sys.argv[1:], os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000")][0]
base_url = address.removesuffix("/v1") + "/v1"
name = OpenAI(base_url=base_url, api_key="none").models.list().data[0].id
model = ChatOpenAI(model=name, base_url=base_url, api_key="none", temperature=0, max_tokens=32)


class Animal(BaseModel):
    """An animal and where it lives."""

    animal: Literal["cat", "fish", "bird"]
    place: Literal["land", "water", "air"]


prompt = ChatPromptTemplate.from_messages(
    [("system", "Answer in one short sentence."), ("human", "What is a {thing}?")]
)
chain = prompt | model
print("chain:   ", chain.invoke({"thing": "violin"}).content)

print("streamed:", "".join(piece.content for piece in chain.stream({"thing": "violin"})))

several = chain.batch([{"thing": "drum"}, {"thing": "flute"}])
print("batch:   ", [answer.usage_metadata["output_tokens"] for answer in several])

bound = model.bind_tools([Animal], tool_choice="Animal", strict=True)
print("tool:    ", bound.invoke("A trout swims in the river.").tool_calls[0]["args"])

structured = model.with_structured_output(Animal)
print("parsed:  ", repr(structured.invoke("A trout swims in the river.")))
