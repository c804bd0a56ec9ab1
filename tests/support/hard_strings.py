"""Strings on which tokenizers go wrong: scripts, emoji, digits, white space, random Unicode.

The same every time: a fixed seed and no outside data. Nothing here is half a surrogate pair.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

SEED = 20240607

SENTENCES = (
    "Hello, world! It's 2024 -- they'll've been 12,345.67 years old.",
    "def f(x):\n\treturn {'a': [1, 2], \"b\": x**2}  # done\r\n\r\n",
    "Zürich, façade, naïve, Ångström, coöperate, smörgåsbord",
    "e\u0301 a\u0308 n\u0303 versus é ä ñ",
    "ďábel čte ščť, příliš žluťoučký kůň",
    "Привет, как дела? Что нового?",
    "Γειά σου Κόσμε, τι κάνεις;",
    "שלום עולם, מה שלומך?",
    "مرحبا بالعالم، كيف حالك؟ ١٢٣",
    "नमस्ते दुनिया, आप कैसे हैं? १२३",
    "สวัสดีชาวโลก คุณเป็นอย่างไรบ้าง",
    "こんにちは世界。お元気ですか？カタカナ１２３",
    "你好，世界！今天天气怎么样？",
    "안녕하세요 세계! 잘 지내세요?",
    "ගමන් යමු, ကမ္ဘာ, გამარჯობა, Բարեւ",
    "🙂🚀🧪 👩‍🚀 👍🏽 🇳🇴 ❤️ 1️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒮𝒸𝓇𝒾𝓅𝓉 𐌰𐌱𐌲 𒀀𒀁",
    "½ ² ⅷ Ⅷ ① ⒈ ㊙ ﷽ ﬁ ﬂ Ĳ ŉ ſ K Å",
    "“quotes” ‘single’ «guillemets» — dash – en … ellipsis",
    "1 12 123 1234 12345 0.001 1e-10 0xFF 3,141,592 ٣٤ ४५",
    "\u00a0no\u00a0break \u2003em \u200bzero \u200d joiner \ufeff mark",
    "a\x00b \x01\x02\x1f \x7f \x80\x9f",
    "camelCase snake_case SCREAMING_CASE kebab-case HTTPServer v1.2.3-rc1",
    "https://example.com/a?b=c&d=%20#e user@example.com C:\\path\\file",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|><bos><eos><unk><0x0A></s>",
    "<start_of_turn>user\n<end_of_turn>\n[INST] x [/INST] <table><tr>",
    "can't CAN'T I'M you'RE we'Ve 'tis 'S d'ſ",
    "!!!??? ...,,, ((())) [[]] {{}} <<>> == != => -> ++ -- && || ~~ ``",
    "\u2581 \u2581\u2581under \u2581 Ġ Ċ ĉ ÄĊ",
)
WHITE_SPACE = (" ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\x0b", "\x0c", "\u2028", "\u0085")
ALPHABETS = (
    (0x20, 0x7F),
    (0x00, 0x20),
    (0x80, 0x250),
    (0x300, 0x530),
    (0x590, 0x780),
    (0x900, 0xE80),
    (0x1E00, 0x2100),
    (0x2100, 0x2C00),
    (0x3000, 0x3200),
    (0x4E00, 0x9FA6),
    (0xAC00, 0xD7A4),
    (0xE000, 0xE100),
    (0xFB00, 0x10000),
    (0x10000, 0x10500),
    (0x1D400, 0x1D800),
    (0x1F300, 0x1FA00),
    (0xE0000, 0xE0080),
    (0x20, 0xD800),
    (0xE000, 0x110000),
)


def hard_strings(count: int = 1500, special: Sequence[str] = ()) -> list[str]:
    """So many different strings; `special` tokens are strewn into some of them."""
    source = random.Random(SEED)
    strings: dict[str, None] = dict.fromkeys(SENTENCES)
    strings.update(dict.fromkeys(_runs()))
    makers = (_white_space, _mixed_scripts, _code_points, _cut_sentences, _repeats)
    while len(strings) < count:
        text = source.choice(makers)(source)
        if special and source.random() < 0.2:
            cut = source.randint(0, len(text))
            text = text[:cut] + source.choice(special) + text[cut:]
        strings[text] = None
    return list(strings)[:count]


def ids_digest(ids: Sequence[int]) -> str:
    """Eight hexadecimal digits that stand for a list of token ids."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:8]


def _runs() -> list[str]:
    """White space and letters repeated, around lengths where vocabularies end."""
    lengths = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 30, 31, 32, 33, 64, 65, 100)
    runs = [sign * n for n in lengths for sign in (" ", "\n", "\t", "a", "=", "0")]
    return [*runs, *(f"x{' ' * n}y" for n in lengths), *(f"{' ' * n}y\n" for n in lengths)]


def _white_space(source: random.Random) -> str:
    words = ("a", "Hello", "42", "é", "世界", ".", "")
    parts = []
    for _ in range(source.randint(1, 8)):
        parts.append(source.choice(WHITE_SPACE) * source.randint(1, 6))
        parts.append(source.choice(words))
    return "".join(parts)


def _mixed_scripts(source: random.Random) -> str:
    picked = (source.choice(SENTENCES).split(" ") for _ in range(source.randint(1, 6)))
    return source.choice((" ", "", "  ", "\n")).join(source.choice(words) for words in picked)


def _code_points(source: random.Random) -> str:
    alphabets = source.choices(ALPHABETS, k=source.randint(1, 3))
    points = (source.randrange(*source.choice(alphabets)) for _ in range(source.randint(1, 40)))
    return "".join(chr(point) for point in points if not 0xD800 <= point < 0xE000)


def _cut_sentences(source: random.Random) -> str:
    text = source.choice(SENTENCES) + source.choice(SENTENCES)
    start = source.randrange(len(text))
    return text[start : start + source.randint(1, 60)]


def _repeats(source: random.Random) -> str:
    unit = source.choice(SENTENCES)[: source.randint(1, 4)]
    return unit * source.randint(2, 30)
