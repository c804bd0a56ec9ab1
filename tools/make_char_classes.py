"""Writes csrc/text/char_class.cpp: the classes of characters that rules for words know.

    python tools/make_char_classes.py

The tables are those of the regular expressions of the `tokenizers` library that is installed, which
follow a newer Unicode than Python's: vocabularies were made with them.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Regex, pre_tokenizers

TARGET = Path(__file__).resolve().parent.parent / "csrc" / "text" / "char_class.cpp"
CLASSES = {r"\p{L}": 1, r"\p{N}": 2, r"\s": 3}  # as in char_class.hpp
NUM_CODES = 0x110000
SURROGATES = range(0xD800, 0xE000)
NUM_ASCII = 128
AT_ONCE = 4096
PER_LINE = 11
HEAD = """#include "char_class.hpp"

#include <algorithm>
#include <iterator>

// Made by tools/make_char_classes.py.

namespace octavo {
namespace {

// Where runs of one class begin: code * 4 + class, in order.
constexpr uint32_t kRuns[] = {
"""
TAIL = """};

struct Ascii {
  CharClass classes[128];
};

constexpr Ascii ascii_classes() {
  Ascii ascii{};
  size_t run = 0;
  for (uint32_t code = 0; code < 128; ++code) {
    while (kRuns[run + 1] / 4 <= code) ++run;
    ascii.classes[code] = static_cast<CharClass>(kRuns[run] & 3);
  }
  return ascii;
}

constexpr Ascii kAscii = ascii_classes();

}  // namespace

CharClass class_of(uint32_t code) {
  if (code < 128) return kAscii.classes[code];
  const uint32_t* after = std::upper_bound(std::begin(kRuns), std::end(kRuns), code * 4 + 3);
  return static_cast<CharClass>(after[-1] & 3);
}

}  // namespace octavo
"""


def class_by_code() -> list[int]:
    """The class of every code; 0 for none."""
    classes = [0] * NUM_CODES
    codes = [code for code in range(NUM_CODES) if code not in SURROGATES]
    for expression, number in CLASSES.items():
        remover = pre_tokenizers.Split(Regex(expression), behavior="removed")
        for first in range(0, len(codes), AT_ONCE):
            some = codes[first : first + AT_ONCE]
            pieces = remover.pre_tokenize_str("".join(map(chr, some)))
            others = {ord(character) for piece, _ in pieces for character in piece}
            for code in some:
                if code not in others:
                    classes[code] = number
    return classes


def main() -> None:
    """Write the file."""
    classes = class_by_code()
    begins = [code for code in range(NUM_CODES) if not code or classes[code] != classes[code - 1]]
    numbers = [f"{code * 4 + classes[code]:#x}" for code in begins]
    lines = [numbers[at : at + PER_LINE] for at in range(0, len(numbers), PER_LINE)]
    table = "".join("    " + ", ".join(line) + ",\n" for line in lines)
    TARGET.write_text(HEAD + table + TAIL, encoding="utf-8")


if __name__ == "__main__":
    main()
