"""A batch with the official OpenAI client: a file of requests, answered when there is room.

pip install openai
octavo serve --batch-store batches.sqlite
python examples/openai_batches.py [http://127.0.0.1:8000]
"""

import io
import json
import os
import sys
import time

from openai import OpenAI

address = [*sys.argv[1:], os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000")][0]
client = OpenAI(base_url=address.removesuffix("/v1") + "/v1", api_key="none")
model = client.models.list().data[0].id
COUNTRIES = ("France", "Japan", "Peru")


def line(country: str) -> str:
    """One request of the batch."""
    question = [{"role": "user", "content": f"What is the capital of {country}?"}]
    body = {"model": model, "messages": question, "temperature": 0, "max_tokens": 16}
    url = "/v1/chat/completions"
    return json.dumps({"custom_id": country, "method": "POST", "url": url, "body": body})


lines = "\n".join(line(country) for country in COUNTRIES)
file = client.files.create(file=("in.jsonl", io.BytesIO(lines.encode())), purpose="batch")
batch = client.batches.create(
    input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
)
while batch.status in ("validating", "in_progress", "finalizing"):
    time.sleep(0.2)
    batch = client.batches.retrieve(batch.id)

print(f"{batch.status}: {batch.request_counts.completed} of {batch.request_counts.total}")
for text in client.files.content(batch.output_file_id).text.splitlines():
    answer = json.loads(text)
    message = answer["response"]["body"]["choices"][0]["message"]
    print(f"{answer['custom_id']}: {message['content']}")
for file_id in (file.id, batch.output_file_id):
    client.files.delete(file_id)
