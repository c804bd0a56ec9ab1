// SentencePiece BPE over the vocabulary of a GGUF file: text -> token ids.
//
// Owns the table of tokens and the merging of characters. A vocabulary has scores and no list of merges:
// two neighbours merge when their union is an ordinary token, the best score first. Ways to make one token
// are tried longest left part first, as in Hugging Face's converters, and the leftmost of equals wins.
// Does not know: what is put before and after a text, what a token means.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "token_table.hpp"

namespace octavo {

struct SentencePieceRules {
  std::string space;     // what a space becomes
  bool adds_space;       // each stretch of text gets one in front
  int32_t unknown;       // the token of characters that nothing spells, fused; -1: they vanish
};

class SentencePiece {
 public:
  // `stored` holds as many tokens as there are kinds and scores, and outlives this.
  // Throws std::invalid_argument for text that is no UTF-8, a token that is there twice, or sizes that
  // contradict each other.
  SentencePiece(std::string_view stored, const std::vector<int32_t>& kinds,
                const std::vector<float>& scores, SentencePieceRules rules);

  // Ids of a text in UTF-8. Tokens that are never cut (control, unknown, user-defined) are found as they
  // are written, the longest first.
  std::vector<int32_t> encode(std::string_view text) const;

  const TokenTable& tokens() const { return tokens_; }
  int32_t byte_token(uint8_t byte) const { return byte_tokens_.empty() ? -1 : byte_tokens_[byte]; }

 private:
  struct Merging;

  void rank(const std::vector<int32_t>& kinds, const std::vector<float>& scores);
  void find_byte_tokens(const std::vector<int32_t>& kinds);

  void encode_stretch(std::string_view text, std::vector<int32_t>* ids) const;
  std::string normalised(std::string_view text) const;

  TokenTable tokens_;
  SentencePieceRules rules_;
  std::vector<int32_t> ranks_;        // of ordinary tokens, the best score first; else -1
  std::vector<int32_t> byte_tokens_;  // 256 of them, or none
};

}  // namespace octavo
