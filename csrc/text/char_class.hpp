// What the rules of tokenizers know of a character: \p{L}, \p{N}, \s, or none of them.
#pragma once

#include <cstdint>
#include <string_view>

#include "utf8.hpp"

namespace octavo {

enum class CharClass : uint8_t { Other, Letter, Number, Space };

CharClass class_of(uint32_t code);

// A character of a text in UTF-8.
struct Character {
  uint32_t code;
  uint32_t length;  // bytes; 0 behind the end of the text
  CharClass kind;
};

inline Character character_at(std::string_view text, size_t position) {
  if (position >= text.size()) return {0, 0, CharClass::Space};
  const uint8_t first = static_cast<uint8_t>(text[position]);
  size_t length = utf8_length(text[position]);
  if (length > text.size() - position) length = text.size() - position;
  uint32_t code = length == 1 ? first : first & (0xffu >> (length + 1));
  for (size_t k = 1; k < length; ++k) {
    code = (code << 6) | (static_cast<uint8_t>(text[position + k]) & 0x3fu);
  }
  return {code, static_cast<uint32_t>(length), class_of(code)};
}

}  // namespace octavo
