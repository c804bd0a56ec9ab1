#include "words.hpp"

#include "char_class.hpp"

namespace octavo {
namespace {

constexpr uint32_t kLongS = 0x17f;  // its upper case is S

bool is_break(uint32_t code) { return code == '\r' || code == '\n'; }

// The end of the characters of one class from `at` on, at most `most` of them.
size_t run_end(std::string_view text, size_t at, CharClass kind, size_t most = ~size_t{0}) {
  for (; most > 0; --most) {
    const Character next = character_at(text, at);
    if (next.length == 0 || next.kind != kind) break;
    at += next.length;
  }
  return at;
}

// A letter of a contraction: small, or of either case.
uint32_t letter_of(const Character& character, bool any_case) {
  if (!any_case) return character.code;
  if (character.code == kLongS) return 's';
  return character.code >= 'A' && character.code <= 'Z' ? character.code + 32 : character.code;
}

// 's 't 'm 'd 're 've 'll; the same position where there is none.
size_t contraction_end(std::string_view text, size_t begin, bool any_case) {
  if (text[begin] != '\'') return begin;
  const Character first = character_at(text, begin + 1);
  const size_t after = begin + 1 + first.length;
  const Character second = character_at(text, after);
  const uint32_t a = letter_of(first, any_case), b = letter_of(second, any_case);
  if (first.length == 0) return begin;
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return after;
  const bool is_pair = second.length != 0 && ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') ||
                                              (a == 'l' && b == 'l'));
  return is_pair ? after + second.length : begin;
}

// White space: all of it at the end of the text, else all but its last character, else that one.
size_t space_end(std::string_view text, size_t begin, size_t end) {
  size_t at = begin, last = begin;
  while (at < end) {
    const Character next = character_at(text, at);
    if (next.length == 0 || next.kind != CharClass::Space) break;
    last = at;
    at += next.length;
  }
  return at == end || last == begin ? at : last;
}

// '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t gpt2_end(std::string_view text, size_t begin) {
  const size_t contracted = contraction_end(text, begin, false);
  if (contracted > begin) return contracted;
  const Character first = character_at(text, begin);
  if (first.kind != CharClass::Space) return run_end(text, begin, first.kind);
  if (first.code == ' ') {
    const Character second = character_at(text, begin + 1);
    if (second.kind != CharClass::Space) return run_end(text, begin + 1, second.kind);
  }
  return space_end(text, begin, text.size());
}

// \p{N}, and the rule of GPT-2 for what lies between
size_t digit_end(std::string_view text, size_t begin) {
  const Character first = character_at(text, begin);
  if (first.kind == CharClass::Number) return begin + first.length;
  if (first.kind != CharClass::Space) return gpt2_end(text, begin);
  const size_t end = run_end(text, begin, CharClass::Space);
  if (character_at(text, end).kind == CharClass::Number) return end;
  return gpt2_end(text, begin);
}

// The last \r or \n of white space, and where it ends; `begin` where there is none.
size_t break_end(std::string_view text, size_t begin) {
  size_t found = begin;
  for (size_t at = begin;;) {
    const Character next = character_at(text, at);
    if (next.length == 0 || next.kind != CharClass::Space) return found;
    at += next.length;
    if (is_break(next.code)) found = at;
  }
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
// |\s*[\r\n]+|\s+(?!\S)|\s+
size_t llama3_end(std::string_view text, size_t begin) {
  const size_t contracted = contraction_end(text, begin, true);
  if (contracted > begin) return contracted;
  const Character first = character_at(text, begin);
  if (first.kind == CharClass::Letter) return run_end(text, begin, CharClass::Letter);
  if (first.kind == CharClass::Number) return run_end(text, begin, CharClass::Number, 3);
  const size_t after = begin + first.length;
  const Character second = character_at(text, after);
  if (second.kind == CharClass::Letter && !is_break(first.code)) {
    return run_end(text, after, CharClass::Letter);
  }
  const bool is_led = first.code == ' ' && second.kind == CharClass::Other;
  if (first.kind == CharClass::Other || is_led) {
    size_t end = run_end(text, is_led ? after : begin, CharClass::Other);
    while (end < text.size() && is_break(static_cast<uint8_t>(text[end]))) ++end;
    return end;
  }
  const size_t broken = break_end(text, begin);
  return broken > begin ? broken : space_end(text, begin, text.size());
}

}  // namespace

size_t word_end(std::string_view text, size_t begin, WordRule rule) {
  switch (rule) {
    case WordRule::Gpt2: return gpt2_end(text, begin);
    case WordRule::DigitsThenGpt2: return digit_end(text, begin);
    case WordRule::Llama3: return llama3_end(text, begin);
  }
  return text.size();
}

}  // namespace octavo
