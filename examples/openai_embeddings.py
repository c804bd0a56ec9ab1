"""Search by meaning with the official OpenAI client. The server runs a model of embeddings.

pip install openai
octavo serve ./all-MiniLM-L6-v2
python examples/openai_embeddings.py [http://127.0.0.1:8000]
"""

import math
import os
import sys

from openai import OpenAI

address = [*sys.argv[1:], os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000")][0]
client = OpenAI(base_url=address.removesuffix("/v1") + "/v1", api_key="none")
model = client.models.list().data[0].id
TEXTS = [
    "A cat sleeps on the warm sofa.",
    "The stock market fell by three percent.",
    "It will rain in the mountains tomorrow.",
]


def vectors(texts: list[str]) -> list[list[float]]:
    """One vector a text. The client asks for base64 and decodes it by itself."""
    answer = client.embeddings.create(model=model, input=texts)
    return [item.embedding for item in answer.data]


def cosine(one: list[float], other: list[float]) -> float:
    """How near two vectors are; 1 where they point the same way."""
    return sum(a * b for a, b in zip(one, other, strict=True)) / (
        math.hypot(*one) * math.hypot(*other)
    )


known = vectors(TEXTS)
print("numbers per text:", len(known[0]))
for question in ("Where is the kitten?", "What will the weather be?"):
    [asked] = vectors([question])
    nearness = [cosine(asked, vector) for vector in known]
    best = max(nearness)
    print(f"{question} -> {TEXTS[nearness.index(best)]} ({best:.2f})")
