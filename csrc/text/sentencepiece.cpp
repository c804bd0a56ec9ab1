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
namespace {

constexpr size_t kLengthBytes = 8;

uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0x9e3779b97f4a7c15u ^ text.size();
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, sizeof word);
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  uint64_t rest = 0;
  std::memcpy(&rest, text.data() + i, text.size() - i);
  hash = (hash ^ rest) * 0xc4ceb9fe1a85ec53u;
  return hash ^ (hash >> 29);
}

uint64_t read_length(const char* p) {
  uint64_t length;
  std::memcpy(&length, p, sizeof length);
  return length;
}

bool is_kind(int32_t kind, TokenKind wanted) { return kind == static_cast<int32_t>(wanted); }

bool is_never_cut(int32_t kind) {
  return is_kind(kind, TokenKind::Control) || is_kind(kind, TokenKind::Unknown) ||
         is_kind(kind, TokenKind::UserDefined);
}

}  // namespace

// ---- the vocabulary ----

SentencePiece::SentencePiece(std::string_view stored, const std::vector<int32_t>& kinds,
                             const std::vector<float>& scores, SentencePieceRules rules)
    : stored_(stored), rules_(std::move(rules)) {
  if (kinds.size() != scores.size()) throw std::invalid_argument("as many kinds as scores are needed");
  read_tokens(stored, static_cast<int64_t>(kinds.size()));
  if (rules_.unknown >= size()) throw std::invalid_argument("the unknown token does not exist");
  size_t capacity = 16;
  while (capacity < 2 * starts_.size()) capacity *= 2;
  slots_.assign(capacity, -1);
  for (int32_t id = 0; id < size(); ++id) insert(id);
  rank(kinds, scores);
  find_byte_tokens(kinds);
  note_whole_tokens(kinds);
}

void SentencePiece::read_tokens(std::string_view stored, int64_t count) {
  starts_.reserve(static_cast<size_t>(count));
  size_t position = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bool has_length = stored.size() - position >= kLengthBytes;
    const uint64_t length = has_length ? read_length(stored.data() + position) : 0;
    if (!has_length || length > stored.size() - position - kLengthBytes) {
      throw std::invalid_argument("there are fewer tokens than kinds");
    }
    position += kLengthBytes;
    if (!is_utf8(stored.substr(position, length))) {
      throw std::invalid_argument("token " + std::to_string(i) + " is not valid UTF-8");
    }
    starts_.push_back(position);
    position += length;
  }
}

void SentencePiece::insert(int32_t id) {
  const std::string_view text = token(id);
  if (text.empty()) return;
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_of(text) & mask;
  for (; slots_[slot] >= 0; slot = (slot + 1) & mask) {
    if (token(slots_[slot]) == text) {
      throw std::invalid_argument("the token '" + std::string(text) + "' is there twice");
    }
  }
  slots_[slot] = id;
}

void SentencePiece::rank(const std::vector<int32_t>& kinds, const std::vector<float>& scores) {
  std::vector<int32_t> ordinary;
  for (int32_t id = 0; id < size(); ++id) {
    if (is_kind(kinds[static_cast<size_t>(id)], TokenKind::Normal)) ordinary.push_back(id);
  }
  // A score that is no number ranks last, so that the order is one whatever the file says.
  const auto key = [&](int32_t id) {
    const float score = scores[static_cast<size_t>(id)];
    return score == score ? score : -std::numeric_limits<float>::infinity();
  };
  std::stable_sort(ordinary.begin(), ordinary.end(),
                   [&](int32_t a, int32_t b) { return key(a) > key(b); });
  ranks_.assign(starts_.size(), -1);
  for (size_t i = 0; i < ordinary.size(); ++i) {
    ranks_[static_cast<size_t>(ordinary[i])] = static_cast<int32_t>(i);
  }
}

void SentencePiece::find_byte_tokens(const std::vector<int32_t>& kinds) {
  std::vector<int32_t> found;
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    const int32_t id = find(name);
    if (id < 0 || !is_kind(kinds[static_cast<size_t>(id)], TokenKind::Byte)) return;
    found.push_back(id);
  }
  byte_tokens_ = std::move(found);
}

void SentencePiece::note_whole_tokens(const std::vector<int32_t>& kinds) {
  is_whole_.assign(starts_.size(), false);
  for (int32_t id = 0; id < size(); ++id) {
    const std::string_view text = token(id);
    if (text.empty() || !is_never_cut(kinds[static_cast<size_t>(id)])) continue;
    is_whole_[static_cast<size_t>(id)] = true;
    whole_lengths_[static_cast<uint8_t>(text[0])].push_back(static_cast<uint32_t>(text.size()));
  }
  for (std::vector<uint32_t>& lengths : whole_lengths_) {
    std::sort(lengths.begin(), lengths.end(), std::greater<>());
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  }
}

std::string_view SentencePiece::token(int32_t id) const {
  if (id < 0 || id >= size()) return {};
  const uint64_t start = starts_[static_cast<size_t>(id)];
  return stored_.substr(start, read_length(stored_.data() + start - kLengthBytes));
}

int32_t SentencePiece::find(std::string_view text) const {
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash_of(text) & mask; slots_[slot] >= 0; slot = (slot + 1) & mask) {
    if (token(slots_[slot]) == text) return slots_[slot];
  }
  return -1;
}

// ---- encoding ----

std::vector<int32_t> SentencePiece::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  size_t begin = 0, position = 0;
  while (position < text.size()) {
    const int32_t whole = whole_token_at(text, position);
    if (whole < 0) {
      ++position;
      continue;
    }
    encode_stretch(text.substr(begin, position - begin), &ids);
    ids.push_back(whole);
    position += token(whole).size();
    begin = position;
  }
  encode_stretch(text.substr(begin), &ids);
  return ids;
}

int32_t SentencePiece::whole_token_at(std::string_view text, size_t position) const {
  for (const uint32_t length : whole_lengths_[static_cast<uint8_t>(text[position])]) {
    if (length > text.size() - position) continue;
    const int32_t id = find(text.substr(position, length));
    if (id >= 0 && is_whole_[static_cast<size_t>(id)]) return id;
  }
  return -1;
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
      const int32_t id = vocabulary.find(text.substr(start, length));
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
    const int32_t id = vocabulary.find(text.substr(first.start, length));
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
      left.id = vocabulary.find(text.substr(left.start, left.length));
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
  if (text.empty()) return;
  const std::string normal = normalised(text);
  Merging merging{*this, normal, {}, {}};
  merging.split();
  merging.merge_all();
  merging.append_ids(ids);
}

}  // namespace octavo
