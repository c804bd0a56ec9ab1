// Byte-level BPE over the vocabulary and the merges of a GGUF file: text -> token ids.
//
// Owns the table of merges and the merging of a word. Two neighbours merge when the file lists them, the
// first of the list first, the leftmost of equals. Does not know: what is put before and after a text, what
// a token means.
//
// The strings of the file stay where they are; the table of merges takes 32 to 64 bytes a merge.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "token_table.hpp"
#include "words.hpp"

namespace octavo {

struct BytePairRules {
  WordRule words;
  bool ignores_merges;  // a word that is a token stays whole
};

class BytePairs {
 public:
  // `tokens` and `merges` are lists as a file stores them; `tokens` holds as many as there are kinds, and
  // outlives this. A merge is two tokens with a space between; of two ways to merge a pair the last counts.
  // Throws std::invalid_argument for what TokenTable refuses, and for a merge of what are no tokens.
  BytePairs(std::string_view tokens, const std::vector<int32_t>& kinds, std::string_view merges,
            BytePairRules rules);

  // Ids of a text in UTF-8. Bytes without a token vanish.
  std::vector<int32_t> encode(std::string_view text) const;

  const TokenTable& tokens() const { return tokens_; }

 private:
  struct Merge {
    int32_t left, right;  // -1: an empty slot
    int32_t rank, result;
  };
  struct Merging;

  void read_merges(std::string_view stored);
  void insert(const Merge& merge);
  const Merge* find(int32_t left, int32_t right) const;
  int32_t whole_word(std::string_view word) const;

  TokenTable tokens_;
  BytePairRules rules_;
  std::vector<Merge> merges_;  // hash table; a power of two
  int32_t byte_tokens_[256];   // -1 where there is none
};

}  // namespace octavo
