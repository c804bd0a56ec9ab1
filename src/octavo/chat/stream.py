"""Chat stream: the text of an answer, split into reasoning, content and tool calls.

Owns the one splitter for streamed and whole answers: a whole answer is the stream, joined, so where
the text was cut never shows. Text that may become a tag is held back until it cannot any more.
Does not know: how a call is written (`tools/`), HTTP.

    stream = ChatStream(dialect, style, tools)
    for text in pieces:
        part = stream.push(text)        # .reasoning, .content, .calls: what is certain by now
    part = stream.finish()
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from octavo.chat.reasoning.registry import ReasoningStyle
from octavo.chat.tools.base import MalformedCallError, ToolCall, ToolDialect, Tools


@dataclass(slots=True)
class ChatPart:
    """What a piece of text brought."""

    reasoning: str = ""
    content: str = ""
    calls: list[ToolCall] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.reasoning or self.content or self.calls)


class _Mode(Enum):
    REASONING = "reasoning"
    CONTENT = "content"
    CALL = "call"


class ChatStream:
    """One answer. Without a dialect no calls are looked for, without a style no reasoning."""

    def __init__(
        self,
        dialect: ToolDialect | None,
        style: ReasoningStyle | None,
        tools: Tools | None = None,
        *,
        is_reasoning: bool = False,
        dropped: Sequence[str] = (),
    ) -> None:
        """`is_reasoning`: the prompt has opened the thoughts. `dropped`: texts of special tokens
        that are shown only because tags are among them; they are left out."""
        self._dialect, self._style, self._tools = dialect, style, tools or Tools()
        starts_open = style is not None and (is_reasoning or style.opens)
        self._mode = _Mode.REASONING if starts_open else _Mode.CONTENT
        self._held = ""  # not certain yet
        self._blanks = ""  # white space of the content that nothing has followed yet
        self._tag = ""  # the tag that began the region
        self._begin = ""  # white space before it
        self._num_judged = 0  # held characters of the region in which no end tag ends it
        self._has_content = False
        self._trims = False  # white space after a region is dropped
        tags = {*(dialect.begins if dialect else ()), *(style.begins if style else ())}
        if dialect is not None:
            tags.add(dialect.end)
        if style is not None:
            tags.add(style.end)
        noise = {*dropped, *(dialect.noise if dialect else ()), *(style.noise if style else ())}
        self._dropped = tuple(text for text in noise if text and text not in tags)
        self._first_letters = {tag[0] for tag in (*tags, *self._dropped) if tag}
        self._has_ended = False

    def push(self, text: str) -> ChatPart:
        """What is certain once `text` has come."""
        self._held += text
        part = ChatPart()
        while self._step(part):
            pass
        return part

    def finish(self) -> ChatPart:
        """The rest. A call without its end tag counts only where the dialect has none."""
        self._has_ended = True
        part = self.push("")
        if self._mode is _Mode.CALL:
            self._end_call(part, self._held, has_end=not (self._dialect and self._dialect.end))
        elif self._mode is _Mode.REASONING:
            part.reasoning += self._held
        else:
            self._add_content(part, self._held)
        self._held = ""
        if not part.calls and self._has_content:
            part.content += self._blanks
        self._blanks = ""
        return part

    # ---- one step: text up to the next tag, and the tag. False when more text is needed.

    def _step(self, part: ChatPart) -> bool:
        if self._mode is _Mode.REASONING:
            return self._reason(part)
        if self._mode is _Mode.CALL:
            return self._collect_call(part)
        return self._answer(part)

    def _reason(self, part: ChatPart) -> bool:
        assert self._style is not None
        # Models repeat the begin tag that the prompt, or the style, has set already.
        before, tag = self._take_until((self._style.end, *self._style.begins, *self._dropped))
        part.reasoning += before
        if tag == self._style.end:
            self._mode, self._trims = _Mode.CONTENT, True
        return tag != ""

    def _answer(self, part: ChatPart) -> bool:
        reasoning_tags = self._style.begins if self._style and not self._has_content else ()
        call_tags = self._call_tags()
        before, tag = self._take_until((*reasoning_tags, *call_tags, *self._dropped))
        only_first = tag in reasoning_tags or (self._dialect and self._dialect.only_at_start)
        if tag and tag not in self._dropped and only_first and before.strip():
            self._add_content(part, before + tag)  # text came first: it is no tag
            return True
        self._add_content(part, before)
        if not tag:
            return False
        if tag in reasoning_tags:
            self._mode = _Mode.REASONING
        elif tag in call_tags:
            self._mode, self._begin, self._tag = _Mode.CALL, self._blanks, tag
            self._blanks = ""
        return True

    def _call_tags(self) -> tuple[str, ...]:
        if self._dialect is None or (self._dialect.only_at_start and self._has_content):
            return ()
        return self._dialect.begins

    def _collect_call(self, part: ChatPart) -> bool:
        assert self._dialect is not None
        end = self._end_of_call(self._dialect)
        if end < 0:
            return False
        body, self._held = self._held[:end], self._held[end + len(self._dialect.end) :]
        self._num_judged = 0
        self._mode = _Mode.CONTENT
        self._end_call(part, body, has_end=True)
        return True

    def _end_of_call(self, dialect: ToolDialect) -> int:
        """Where the end tag begins in the held text; -1: more is needed, or the answer ends it.

        An end tag inside a text of the call is none, unless the call never ends otherwise.
        """
        if not dialect.end:
            return -1
        end = self._held.find(dialect.end, self._num_judged)
        while end >= 0 and dialect.is_open(self._held[:end]):
            self._num_judged = end + 1  # what stands before it does not change any more
            end = self._held.find(dialect.end, self._num_judged)
        return self._held.find(dialect.end) if end < 0 and self._has_ended else end

    def _end_call(self, part: ChatPart, body: str, *, has_end: bool) -> None:
        """A region is complete: calls, or plain text if it is none."""
        assert self._dialect is not None
        try:
            if not has_end:
                raise MalformedCallError("the answer was cut")
            text = self._tag + body if self._dialect.keeps_begin else body
            part.calls += self._dialect.parse(text, self._tools)
            self._trims = True
        except MalformedCallError:
            end = self._dialect.end if has_end else ""
            self._add_content(part, self._begin + self._tag + body + end)

    # ---- text

    def _take_until(self, tags: Iterable[str]) -> tuple[str, str]:
        """Text before the first of `tags` and that tag; or what cannot belong to one, and ""."""
        first, found = len(self._held), ""
        known = [tag for tag in tags if tag]
        if not self._first_letters & set(self._held):  # most text
            text, self._held = self._held, ""
            return text, ""
        for tag in known:
            place = self._held.find(tag)
            if 0 <= place < first or (place == first and len(tag) > len(found)):
                first, found = place, tag
        rest = self._held[first:]
        if (
            found
            and not self._has_ended
            and any(len(tag) > len(rest) and tag.startswith(rest) for tag in known)
        ):  # a longer tag may be on its way
            before, self._held = self._held[:first], rest
            return before, ""
        if found:
            before, self._held = self._held[:first], self._held[first + len(found) :]
            return before, found
        keep = self._longest_beginning_of(known)
        cut = len(self._held) - keep
        before, self._held = self._held[:cut], self._held[cut:]
        return before, ""

    def _longest_beginning_of(self, tags: Sequence[str]) -> int:
        """Characters at the end of the held text that may be the beginning of a tag."""
        longest = max((len(tag) for tag in tags), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            tail = self._held[-length:]
            if any(tag.startswith(tail) for tag in tags):
                return length
        return 0

    def _add_content(self, part: ChatPart, text: str) -> None:
        """Content; white space waits for what follows it, since a region swallows it."""
        text = self._blanks + text
        body = text.rstrip()
        self._blanks = text[len(body) :]
        if not body:
            return
        if self._trims:
            body = body.lstrip()
        self._trims = False
        self._has_content = True
        part.content += body
