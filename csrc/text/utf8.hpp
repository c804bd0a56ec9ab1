// UTF-8: where characters end.
#pragma once

#include <cstdint>
#include <string_view>

namespace octavo {

// Bytes of the character that begins with `first`; 1 for a byte that begins none.
inline size_t utf8_length(char first) {
  const uint8_t byte = static_cast<uint8_t>(first);
  return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : byte < 0xf8 ? 4 : 1;
}

// Whether Python would decode `text`: no surrogates, no overlong forms, nothing above U+10FFFF.
inline bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const uint8_t first = static_cast<uint8_t>(text[i]);
    if (first < 0x80) {
      ++i;
      continue;
    }
    const size_t length = utf8_length(text[i]);
    if (length == 1 || length > text.size() - i) return false;
    uint32_t code = first & (0xffu >> (length + 1));
    for (size_t k = 1; k < length; ++k) {
      const uint8_t next = static_cast<uint8_t>(text[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      code = (code << 6) | (next & 0x3fu);
    }
    constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kSmallest[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += length;
  }
  return true;
}

}  // namespace octavo
