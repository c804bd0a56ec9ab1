"""The tokenizer of a server, by its /tokenize and /detokenize, and what else it tells of itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from octavo.cli.bench.http_stream import post_lines

_SAFE_VOCABULARY = 1000  # ids below exist in the vocabulary of any model that is worth measuring


class ServerCounter:
    """A `TokenCounter`. Each call is a request; use it before the clock starts."""

    def __init__(
        self, base_url: str, model: str, headers: Mapping[str, str], vocab_size: int | None
    ) -> None:
        self.vocab_size = vocab_size or _SAFE_VOCABULARY
        self._url = urlsplit(base_url)
        self._model = model
        self._headers = {"Content-Type": "application/json", **headers}

    def encode(self, text: str) -> list[int]:
        """See `TokenCounter`. Raises ServerError."""
        found: list[int] = self._ask("/tokenize", {"prompt": text})["tokens"]
        return found

    def decode(self, token_ids: Sequence[int]) -> str:
        """See `TokenCounter`. Raises ServerError."""
        return str(self._ask("/detokenize", {"tokens": list(token_ids)})["prompt"])

    def _ask(self, path: str, fields: Mapping[str, Any]) -> Any:
        body = json.dumps({"model": self._model, **fields}).encode()
        prefix = self._url.path.rstrip("/")

        async def answer() -> bytes:
            lines = post_lines(self._url, prefix + path, body, self._headers)
            return b"\n".join([line async for line in lines])

        return json.loads(asyncio.run(answer()))
