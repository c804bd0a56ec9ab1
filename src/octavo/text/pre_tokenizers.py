"""How a text is cut into words before byte-pair merging, by the name that a GGUF file gives.

Owns the table of `tokenizer.ggml.pre` names. The names are llama.cpp's, and the rules are those of
the tokenizers the names were made for; where an original tokenizer.json is known, its own
expressions are used, because the two differ in corners (letter case of contractions, combining
marks). Does not know: vocabularies, merges. Used by: gguf_tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from octavo.errors import UnsupportedModelError

if TYPE_CHECKING:
    from tokenizers import normalizers, pre_tokenizers


@dataclass(frozen=True, slots=True)
class WordRule:
    """One way of cutting. Each expression cuts the pieces that the one before it left."""

    expressions: tuple[str, ...]
    is_nfc: bool = False  # the text is brought into Unicode's composed form first
    ignores_merges: bool = False  # a word that is a token stays whole
    adds_bos: bool = False  # unless the file says otherwise

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        """The rule for the `tokenizers` library, bytes spelled in GPT-2's alphabet."""
        from tokenizers import Regex, pre_tokenizers  # noqa: PLC0415 - native code has some rules

        splits = [
            pre_tokenizers.Split(Regex(expression), behavior="isolated")
            for expression in self.expressions
        ]
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([*splits, byte_level])

    def normalizer(self) -> normalizers.Normalizer | None:
        from tokenizers import normalizers  # noqa: PLC0415 - see above

        return normalizers.NFC() if self.is_nfc else None


NUMBER = r"\p{N}"
# Parts that several expressions share. `TAIL` ends all those that came after GPT-2's.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED_HEAD = r"[^\r\n\p{L}\p{N}]?"
ASCII_SIGNS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"

LLAMA3 = rf"{CONTRACTION}|{WORD}|\p{{N}}{{1,3}}|{PUNCTUATION}|{TAIL}"
QWEN2 = rf"{CONTRACTION}|{WORD}|\p{{N}}|{PUNCTUATION}|{TAIL}"
QWEN35 = (
    rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{TAIL}"
)
TEKKEN = (
    rf"{CASED_HEAD}{UPPER}*{LOWER}+|{CASED_HEAD}{UPPER}+{LOWER}*|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{TAIL}"
)
GPT4O = (
    rf"{CASED_HEAD}{UPPER}*{LOWER}+{CONTRACTION}?|{CASED_HEAD}{UPPER}+{LOWER}*{CONTRACTION}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{TAIL}"
)
DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    rf"{ASCII_SIGNS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{TAIL}",
)
CJK_AND_HANGUL = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# Letters that have a case, as DeepSeek LLM lists them; by number, as some change in normal forms.
CASED_LETTERS = (
    r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}"
    r"\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}"
    r"\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}"
    r"\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}"
    r"\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}"
    r"\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}"
    r"\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}"
    r"\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}"
    r"\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}"
    r"\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}"
    r"\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}"
    r"\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}"
    r"\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}"
    r"\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}"
    r"\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}"
    r"\x{1E900}-\x{1E943}"
)
WORDS_BETWEEN_SIGNS = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+"

_LLAMA3 = WordRule((LLAMA3,), ignores_merges=True, adds_bos=True)
_PLAIN_LLAMA3 = WordRule((LLAMA3,))
_GPT2 = WordRule((GPT2,))
_DIGITS = WordRule((NUMBER, GPT2))
_QWEN2 = WordRule((QWEN2,), is_nfc=True)
_PLAIN_QWEN2 = WordRule((QWEN2,))
_GPT4O = WordRule((GPT4O,))
_DEEPSEEK3 = WordRule(DEEPSEEK3)

WORD_RULES: Mapping[str, WordRule] = MappingProxyType(
    {
        "default": WordRule(
            (r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
        ),
        # one digit at a time, then GPT-2
        "smollm": _DIGITS,
        "starcoder": _DIGITS,
        "refact": _DIGITS,
        "codeshell": _DIGITS,
        "exaone": _DIGITS,
        "minerva-7b": _DIGITS,
        "mellum2": _DIGITS,
        "command-r": WordRule((r"\p{N}", GPT2), is_nfc=True),
        # GPT-2
        "gpt-2": _GPT2,
        "phi-2": _GPT2,
        "mpt": _GPT2,
        "olmo": _GPT2,
        "jais": _GPT2,
        "exaone4": _GPT2,
        "trillion": _GPT2,
        "granite-docling": _GPT2,
        "gigachat": _GPT2,
        "a.x-4.0": _GPT2,
        "mellum": _GPT2,
        "falcon": WordRule((r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]")),
        # Llama 3
        "llama3": _LLAMA3,
        "llama-v3": _LLAMA3,
        "llama-bpe": _LLAMA3,
        "falcon3": _LLAMA3,
        "falcon-h1": _LLAMA3,
        "pixtral": _LLAMA3,
        "midm-2.0": _LLAMA3,
        "lfm2": _LLAMA3,
        "dbrx": _PLAIN_LLAMA3,
        "smaug-bpe": _PLAIN_LLAMA3,
        "glm4": _PLAIN_LLAMA3,
        "chatglm-bpe": _PLAIN_LLAMA3,
        # Qwen 2 and relatives
        "qwen2": _QWEN2,
        "deepseek-r1-qwen": _QWEN2,
        "megrez": _PLAIN_QWEN2,
        "stablelm2": _PLAIN_QWEN2,
        "hunyuan": _PLAIN_QWEN2,
        "grok-2": _PLAIN_QWEN2,
        "solar-open": _PLAIN_QWEN2,
        "qwen35": WordRule((QWEN35,), is_nfc=True),
        "seed-coder": WordRule(
            (rf"{CONTRACTION}|{WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{TAIL}",)
        ),
        "bailingmoe": WordRule(
            (
                r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
                r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
            )
        ),
        # cased words
        "tekken": WordRule((TEKKEN,), ignores_merges=True, adds_bos=True),
        "gpt-4o": _GPT4O,
        "llama4": _GPT4O,
        "kanana2": _GPT4O,
        "minimax-m2": _GPT4O,
        # DeepSeek
        "deepseek-llm": WordRule(
            (
                r"[\r\n]",
                rf"\s?[{CASED_LETTERS}]+",
                r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
                r"\s+$",
                CJK_AND_HANGUL,
                r"\p{N}+",
            )
        ),
        "deepseek-coder": WordRule(
            (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK_AND_HANGUL, r"\p{N}")
        ),
        "deepseek-v3": _DEEPSEEK3,
        "hunyuan-dense": _DEEPSEEK3,
        "joyai-llm": _DEEPSEEK3,
        # BLOOM and relatives
        "bloom": WordRule((WORDS_BETWEEN_SIGNS,)),
        "gpt3-finnish": WordRule((WORDS_BETWEEN_SIGNS,)),
        "poro-chat": WordRule((WORDS_BETWEEN_SIGNS,)),
        "viking": WordRule((WORDS_BETWEEN_SIGNS, r"\p{N}")),
    }
)


def word_rule(name: str) -> WordRule:
    """The rule behind a `tokenizer.ggml.pre` name.

    Raises UnsupportedModelError that lists the known names.
    """
    try:
        return WORD_RULES[name]
    except KeyError:
        known = ", ".join(sorted(WORD_RULES))
        message = f"tokenizer.ggml.pre is {name!r}, which is not known. Supported: {known}"
        raise UnsupportedModelError(message) from None
