// The tokens of a vocabulary where a GGUF file stores them: id -> text, text -> id, and those never cut.
//
// Nothing is copied: tokens stay where they are stored, each as its length (u64, little endian) and its
// bytes. What is made here takes about 20 bytes a token. Does not know how a text is cut.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace octavo {

// `tokenizer.ggml.token_type`.
enum class TokenKind : int32_t { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };

inline bool is_kind(int32_t kind, TokenKind wanted) { return kind == static_cast<int32_t>(wanted); }

// A list of strings as a file stores it. Steps over them, and never beyond its bytes.
class StoredStrings {
 public:
  explicit StoredStrings(std::string_view bytes) : left_(bytes) {}

  // False at the end, and for a length that leads beyond it.
  bool next(std::string_view* string);

 private:
  std::string_view left_;
};

class TokenTable {
 public:
  // `stored` holds as many tokens as there are kinds, and outlives this.
  // Throws std::invalid_argument for text that is no UTF-8, a token that is there twice, or too few tokens.
  TokenTable(std::string_view stored, const std::vector<int32_t>& kinds);

  int32_t size() const { return static_cast<int32_t>(starts_.size()); }
  std::string_view token(int32_t id) const;    // empty for one without a text and for one that is not there
  int32_t find(std::string_view token) const;  // -1 where there is none

  // Hands a text over in order: `stretch(text)` and `whole(id)` for tokens that are never cut (control,
  // unknown, user-defined), which are found as they are written, the longest first.
  template <typename Stretch, typename Whole>
  void split(std::string_view text, const Stretch& stretch, const Whole& whole) const {
    size_t begin = 0, position = 0;
    while (position < text.size()) {
      const int32_t id = whole_at(text, position);
      if (id < 0) {
        ++position;
        continue;
      }
      if (position > begin) stretch(text.substr(begin, position - begin));
      whole(id);
      position += token(id).size();
      begin = position;
    }
    if (begin < text.size()) stretch(text.substr(begin));
  }

 private:
  void read(std::string_view stored, size_t count);
  void insert(int32_t id);
  void note_whole_tokens(const std::vector<int32_t>& kinds);
  int32_t whole_at(std::string_view text, size_t position) const;

  std::string_view stored_;
  std::vector<uint64_t> starts_;              // of each token's bytes
  std::vector<int32_t> slots_;                // hash table of ids, -1 for empty; a power of two
  std::vector<bool> is_whole_;
  std::vector<uint32_t> whole_lengths_[256];  // by first byte, longest first
};

}  // namespace octavo
