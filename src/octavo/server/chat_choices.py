"""The choices of one chat answer: text that comes becomes reasoning, content and tool calls.

Owns the splitters, the ids of calls, the finish reason that calls change. A whole answer goes the
same way as a stream, in one piece.
"""

from __future__ import annotations

from typing import Any

from octavo.chat.stream import ChatPart, ChatStream
from octavo.outputs import CompletionOutput
from octavo.sampling_params import SamplingParams
from octavo.server.chat_format import AnswerFormat
from octavo.server.reasoning_tokens import ThoughtTokens
from octavo.text.tokenizer import Tokenizer


class ChatChoices:
    """All choices of one answer. `params` of the request may change here: tags must be shown."""

    def __init__(self, form: AnswerFormat, params: SamplingParams, tokenizer: Tokenizer) -> None:
        self._form, self._tokenizer = form, tokenizer
        self._thoughts: dict[int, ThoughtTokens] = {}
        self._is_answer: list[bool] | None = None
        self._streams: dict[int, ChatStream] = {}
        self._num_calls: dict[int, int] = {}
        self._dropped: tuple[str, ...] = ()
        self._end_tags: dict[int, str] = {}
        if not form.splits:
            return
        if not params.include_stop_str_in_output:
            self._end_tags = form.end_tags_by_id(tokenizer)
        if params.skip_special_tokens and form.needs_special_tokens(tokenizer):
            params.skip_special_tokens = False
            self._dropped = tuple(map(tokenizer.token_of, sorted(tokenizer.special_ids)))

    @property
    def splits(self) -> bool:
        """Whether an answer has other parts than its text."""
        return self._form.splits

    @property
    def num_reasoning_tokens(self) -> int | None:
        """Tokens of thoughts so far; None where nobody knows how this model thinks."""
        if self._form.style is None:
            return None
        return sum(thoughts.count for thoughts in self._thoughts.values())

    @property
    def answer_tokens(self) -> list[bool] | None:
        """For each token of the last part whether it is no thought; None: none of them is."""
        return self._is_answer

    def part_of(self, choice: CompletionOutput) -> ChatPart:
        """What the new text of a choice brought."""
        stream = self._streams.get(choice.index)
        if stream is None:
            stream = self._streams[choice.index] = self._form.splitter(self._dropped)
        part = stream.push(choice.text)
        if choice.finish_reason is not None:
            if choice.finish_reason == "stop" and choice.token_ids:
                _add(part, stream.push(self._end_tags.get(choice.token_ids[-1], "")))
            _add(part, stream.finish())
        self._count_thoughts(choice, part.reasoning)
        if not self._form.shows_reasoning:
            part.reasoning = ""
        if self._form.one_call:
            part.calls = part.calls[: 1 - self._num_calls.get(choice.index, 0)]
        return part

    def _count_thoughts(self, choice: CompletionOutput, text: str) -> None:
        style = self._form.style
        if style is None:
            return
        if choice.index not in self._thoughts:
            self._thoughts[choice.index] = ThoughtTokens(
                self._tokenizer, style, is_open=self._form.is_reasoning or style.opens
            )
        self._is_answer = self._thoughts[choice.index].take(
            choice.token_ids, text, is_last=choice.finish_reason is not None
        )

    def calls_of(self, index: int, part: ChatPart, *, is_delta: bool) -> list[dict[str, Any]]:
        """The calls of a part as the API shows them; each has its id from here on."""
        first = self._num_calls.get(index, 0)
        self._num_calls[index] = first + len(part.calls)
        shown: list[dict[str, Any]] = []
        for place, call in enumerate(part.calls, first):
            entry: dict[str, Any] = {"index": place} if is_delta else {}
            entry |= {
                "id": self._form.call_id(),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            shown.append(entry)
        return shown

    def finish_of(self, choice: CompletionOutput) -> str | None:
        """The finish reason: calls that the model chose to make, or had to choose, have their own.

        OpenAI ends a call of a named function with "stop".
        """
        made_calls = self._num_calls.get(choice.index, 0) > 0
        if choice.finish_reason == "stop" and made_calls and self._form.choice.kind != "named":
            return "tool_calls"
        return choice.finish_reason

    def message_of(self, choice: CompletionOutput, role: str) -> dict[str, Any]:
        """The whole of a choice."""
        part = self.part_of(choice) if self.splits else ChatPart(content=choice.text)
        calls = self.calls_of(choice.index, part, is_delta=False)
        message: dict[str, Any] = {
            "role": role,
            "content": part.content or (None if calls else ""),
            "refusal": None,
        }
        if self._form.style is not None:
            message["reasoning"] = part.reasoning or None
        if calls:
            message["tool_calls"] = calls
        return message

    def delta_of(self, index: int, part: ChatPart) -> dict[str, Any]:
        """What is new of a choice."""
        delta: dict[str, Any] = {}
        if part.reasoning:
            delta["reasoning"] = part.reasoning
        if part.content:
            delta["content"] = part.content
        calls = self.calls_of(index, part, is_delta=True)
        if calls:
            delta["tool_calls"] = calls
        return delta


def _add(part: ChatPart, other: ChatPart) -> None:
    part.reasoning += other.reasoning
    part.content += other.content
    part.calls += other.calls
