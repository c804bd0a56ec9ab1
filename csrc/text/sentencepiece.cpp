#include "sentencepiece.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <stdexcept>
#include <utility>

#include "utf8.hpp"

namespace octavo {
// ---- the vocabulary ----

SentencePiece::SentencePiece(std::string_view stored, const std::vector<int32_t>& kinds,
                             const std::vector<float>& scores, SentencePieceRules rules)
    : tokens_(stored, kinds), rules_(std::move(rules)) {
  if (kinds.size() != scores.size()) throw std::invalid_argument("as many kinds as scores are needed");
  if (rules_.unknown >= tokens_.size()) throw std::invalid_argument("the unknown token does not exist");
  rank(kinds, scores);
  find_byte_tokens(kinds);
}

void SentencePiece::rank(const std::vector<int32_t>& kinds, const std::vector<float>& scores) {
  std::vector<int32_t> ordinary;
  for (int32_t id = 0; id < tokens_.size(); ++id) {
    if (is_kind(kinds[static_cast<size_t>(id)], TokenKind::Normal)) ordinary.push_back(id);
  }
  // A score that is no number ranks last, so that the order is one whatever the file says.
  const auto key = [&](int32_t id) {
    const float score = scores[static_cast<size_t>(id)];
    return score == score ? score : -std::numeric_limits<float>::infinity();
  };
  std::stable_sort(ordinary.begin(), ordinary.end(),
                   [&](int32_t a, int32_t b) { return key(a) > key(b); });
  ranks_.assign(static_cast<size_t>(tokens_.size()), -1);
  for (size_t i = 0; i < ordinary.size(); ++i) {
    ranks_[static_cast<size_t>(ordinary[i])] = static_cast<int32_t>(i);
  }
}

void SentencePiece::find_byte_tokens(const std::vector<int32_t>& kinds) {
  std::vector<int32_t> found;
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    const int32_t id = tokens_.find(name);
    if (id < 0 || !is_kind(kinds[static_cast<size_t>(id)], TokenKind::Byte)) return;
    found.push_back(id);
  }
  byte_tokens_ = std::move(found);
}

// ---- encoding ----

std::vector<int32_t> SentencePiece::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  tokens_.split(
      text, [&](std::string_view stretch) { encode_stretch(stretch, &ids); },
      [&](int32_t whole) { ids.push_back(whole); });
  return ids;
}

std::string SentencePiece::normalised(std::string_view text) const {
  std::string result = rules_.adds_space ? rules_.space : std::string();
  result.reserve(result.size() + text.size());
  for (const char character : text) {
    if (character == ' ') {
      result += rules_.space;
    } else {
      result += character;
    }
  }
  return result;
}

// The pieces of one stretch of text, linked in order, and the merges that may come next.
struct SentencePiece::Merging {
  struct Piece {
    size_t start, length;
    int32_t id;      // -1: characters that nothing spells
    int32_t before, after;
  };
  struct Candidate {
    int32_t rank;
    size_t left_length;
    int32_t left;
    size_t length;  // of both together, to tell whether they are still there

    bool operator<(const Candidate& other) const {  // a priority queue gives the largest first
      if (rank != other.rank) return rank > other.rank;
      if (left_length != other.left_length) return left_length < other.left_length;
      return left > other.left;
    }
  };

  const SentencePiece& vocabulary;
  std::string_view text;
  std::vector<Piece> pieces;
  std::priority_queue<Candidate> candidates;

  bool is_ordinary(const Piece& piece) const {
    return piece.id >= 0 && vocabulary.ranks_[static_cast<size_t>(piece.id)] >= 0;
  }

  void split() {
    for (size_t start = 0; start < text.size();) {
      const size_t length = std::min(utf8_length(text[start]), text.size() - start);
      const int32_t id = vocabulary.tokens_.find(text.substr(start, length));
      const int32_t place = static_cast<int32_t>(pieces.size());
      pieces.push_back({start, length, id, place - 1, place + 1});
      start += length;
    }
    if (!pieces.empty()) pieces.back().after = -1;
  }

  void propose(int32_t left) {
    const Piece& first = pieces[static_cast<size_t>(left)];
    if (first.after < 0) return;
    const Piece& second = pieces[static_cast<size_t>(first.after)];
    if (!is_ordinary(first) || !is_ordinary(second)) return;
    const size_t length = first.length + second.length;
    const int32_t id = vocabulary.tokens_.find(text.substr(first.start, length));
    const int32_t rank = id < 0 ? -1 : vocabulary.ranks_[static_cast<size_t>(id)];
    if (rank >= 0) candidates.push({rank, first.length, left, length});
  }

  void merge_all() {
    for (size_t i = 0; i < pieces.size(); ++i) propose(static_cast<int32_t>(i));
    while (!candidates.empty()) {
      const Candidate best = candidates.top();
      candidates.pop();
      Piece& left = pieces[static_cast<size_t>(best.left)];
      if (left.length == 0 || left.after < 0) continue;
      Piece& right = pieces[static_cast<size_t>(left.after)];
      if (left.length + right.length != best.length) continue;
      left.length = best.length;
      left.id = vocabulary.tokens_.find(text.substr(left.start, left.length));
      left.after = right.after;
      right.length = 0;
      if (left.after >= 0) pieces[static_cast<size_t>(left.after)].before = best.left;
      if (left.before >= 0) propose(left.before);
      propose(best.left);
    }
  }

  void append_ids(std::vector<int32_t>* ids) const {
    bool after_unknown = false;
    for (const Piece& piece : pieces) {
      if (piece.length == 0) continue;
      if (piece.id >= 0) {
        ids->push_back(piece.id);
        after_unknown = false;
      } else if (!vocabulary.byte_tokens_.empty()) {
        for (const char byte : text.substr(piece.start, piece.length)) {
          ids->push_back(vocabulary.byte_tokens_[static_cast<uint8_t>(byte)]);
        }
        after_unknown = false;
      } else if (vocabulary.rules_.unknown >= 0 && !after_unknown) {
        ids->push_back(vocabulary.rules_.unknown);
        after_unknown = true;
      }
    }
  }
};

void SentencePiece::encode_stretch(std::string_view text, std::vector<int32_t>* ids) const {
  const std::string normal = normalised(text);
  Merging merging{*this, normal, {}, {}};
  merging.split();
  merging.merge_all();
  merging.append_ids(ids);
}

}  // namespace octavo
