"""Ollama's official client: a chat, a stream, an answer of a given form, the models.

pip install ollama
python examples/ollama_chat.py [http://127.0.0.1:8000]
"""

import json
import os
import sys

from ollama import Client

address = [*sys.argv[1:], os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000")][0]
client = Client(host=address.removesuffix("/v1"))
model = client.list().models[0].model
print("model:   ", model, client.show(model).capabilities)
messages = [{"role": "user", "content": "Name three colours."}]
options = {"temperature": 0, "num_predict": 24}

print("whole:   ", client.chat(model, messages, options=options).message.content)

print("streamed:", end=" ")
for piece in client.chat(model, messages, stream=True, options=options):
    print(piece.message.content, end="", flush=True)
print(f"\nusage:    {piece.prompt_eval_count} in, {piece.eval_count} out")

schema = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green", "blue"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
question = [{"role": "user", "content": "Which colour has grass?"}]
answer = client.chat(model, question, format=schema, options=options)
print("format:  ", json.loads(answer.message.content))
print("generate:", client.generate(model, "The capital of France is", options=options).response)
