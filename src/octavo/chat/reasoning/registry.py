"""Names of reasoning parsers and their tags, and the one that a chat template speaks.

The names are vLLM's `--reasoning-parser` values. A new one is one line in `STYLES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from octavo.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ReasoningStyle:
    """Where thoughts begin and end. An answer that `opens` begins with them, without a tag."""

    begins: tuple[str, ...]
    end: str
    opens: bool = False
    has_special_tags: bool = False  # the tags are special tokens, so those must be shown
    noise: tuple[str, ...] = ()  # marks of the format that belong to no part


_THINK = ReasoningStyle(("<think>",), "</think>")
_HARMONY = ReasoningStyle(
    ("<|channel|>analysis<|message|>",),
    "<|end|>",
    has_special_tags=True,
    noise=("<|start|>assistant", "<|channel|>final<|message|>", "<|return|>"),
)

STYLES: Mapping[str, ReasoningStyle] = MappingProxyType(
    {
        "qwen3": _THINK,
        "deepseek_r1": ReasoningStyle(("<think>",), "</think>", opens=True),
        "deepseek_v3": _THINK,
        "glm45": _THINK,
        "granite": ReasoningStyle(
            ("Here is my thought process:", "Here's my thought process:"),
            "Here is my response:",
        ),
        "mistral": ReasoningStyle(("[THINK]",), "[/THINK]", has_special_tags=True),
        "openai_gptoss": _HARMONY,
    }
)
_MARKS = (
    ("<|channel|>", "openai_gptoss"),
    ("[THINK]", "mistral"),
    ("</think>", "qwen3"),
)


def find_style(name: str) -> ReasoningStyle:
    """The style of this name.

    Raises ConfigError that lists the names.
    """
    if name not in STYLES:
        known = ", ".join(sorted(STYLES))
        raise ConfigError(f"--reasoning-parser must be one of {known}, got {name!r}")
    return STYLES[name]


def tagged_style(style: ReasoningStyle | None, begin: str, end: str) -> ReasoningStyle | None:
    """The style with tags that were named apart. A style of its own where there is none.

    Raises ConfigError for tags that the style has not, and for one without the other.
    """
    if style is None and begin and end:
        return ReasoningStyle((begin,), end)
    known = ((), "") if style is None else (style.begins, style.end)
    if (begin and begin not in known[0]) or (end and end != known[1]):
        tags = "no tags" if style is None else " and ".join((*style.begins, style.end))
        raise ConfigError(
            f"--reasoning-config: thoughts begin with {begin!r} and end with {end!r}, but the "
            f"style of the model has {tags}; name both tags with --reasoning-parser none, or "
            "another style"
        )
    return style


def style_of_template(template: str | None) -> str | None:
    """The name of the style that a chat template shows; None if its model does not think aloud."""
    for mark, name in _MARKS:
        if template is not None and mark in template:
            return name
    return None
