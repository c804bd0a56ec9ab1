#include "byte_pairs.hpp"

#include <queue>
#include <stdexcept>
#include <string>
#include <utility>

namespace octavo {
namespace {

// GPT-2's alphabet: printable Latin-1 stands for itself, the other bytes for the characters from 256 on.
struct Alphabet {
  char text[256][2];
  uint8_t length[256];

  Alphabet() {
    uint32_t moved = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool is_printable =
          (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      const uint32_t code = is_printable ? byte : moved++;
      length[byte] = code < 0x80 ? 1 : 2;
      text[byte][0] = static_cast<char>(code < 0x80 ? code : 0xc0 | (code >> 6));
      text[byte][1] = static_cast<char>(0x80 | (code & 0x3f));
    }
  }

  std::string_view of(char byte) const {
    const uint8_t index = static_cast<uint8_t>(byte);
    return {text[index], length[index]};
  }
};

const Alphabet& alphabet() {
  static const Alphabet made;
  return made;
}

size_t hash_of(int32_t left, int32_t right) {
  uint64_t hash = (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
  hash *= 0xff51afd7ed558ccdu;
  return static_cast<size_t>(hash ^ (hash >> 32));
}

}  // namespace

// ---- the vocabulary ----

BytePairs::BytePairs(std::string_view tokens, const std::vector<int32_t>& kinds, std::string_view merges,
                     BytePairRules rules)
    : tokens_(tokens, kinds), rules_(rules) {
  read_merges(merges);
  for (int byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = tokens_.find(alphabet().of(static_cast<char>(byte)));
  }
}

void BytePairs::read_merges(std::string_view stored) {
  std::string_view pair;
  size_t count = 0;
  for (StoredStrings strings(stored); strings.next(&pair);) ++count;
  size_t capacity = 16;
  while (capacity < 2 * count) capacity *= 2;
  merges_.assign(capacity, {-1, -1, 0, 0});
  StoredStrings strings(stored);
  std::string both;
  for (int32_t rank = 0; strings.next(&pair); ++rank) {
    const size_t space = pair.find(' ');
    if (space == std::string_view::npos) throw std::invalid_argument("a merge is no pair");
    const std::string_view left = pair.substr(0, space), right = pair.substr(space + 1);
    both.assign(left).append(right);
    const Merge merge{tokens_.find(left), tokens_.find(right), rank, tokens_.find(both)};
    if (merge.left < 0 || merge.right < 0 || merge.result < 0) {
      throw std::invalid_argument("the merge '" + std::string(pair) + "' is none of tokens");
    }
    insert(merge);
  }
}

void BytePairs::insert(const Merge& merge) {
  const size_t mask = merges_.size() - 1;
  size_t slot = hash_of(merge.left, merge.right) & mask;
  while (merges_[slot].left >= 0 &&
         (merges_[slot].left != merge.left || merges_[slot].right != merge.right)) {
    slot = (slot + 1) & mask;
  }
  merges_[slot] = merge;
}

const BytePairs::Merge* BytePairs::find(int32_t left, int32_t right) const {
  const size_t mask = merges_.size() - 1;
  for (size_t slot = hash_of(left, right) & mask; merges_[slot].left >= 0; slot = (slot + 1) & mask) {
    if (merges_[slot].left == left && merges_[slot].right == right) return &merges_[slot];
  }
  return nullptr;
}

int32_t BytePairs::whole_word(std::string_view word) const {
  std::string spelled;
  for (const char byte : word) spelled.append(alphabet().of(byte));
  return tokens_.find(spelled);
}

// ---- encoding ----

// The tokens of one word, linked in order, and the merges that may come next. Kept for the next word.
struct BytePairs::Merging {
  struct Part {
    int32_t id;  // -1: it is a part of the one before
    int32_t before, after;
  };
  struct Candidate {
    const Merge* merge;
    int32_t left;

    bool operator<(const Candidate& other) const {  // a priority queue gives the largest first
      if (merge->rank != other.merge->rank) return merge->rank > other.merge->rank;
      return left > other.left;
    }
  };

  const BytePairs& pairs;
  std::vector<Part> parts;
  std::priority_queue<Candidate> candidates;

  void append(std::string_view word, std::vector<int32_t>* ids) {
    if (pairs.rules_.ignores_merges) {
      const int32_t whole = pairs.whole_word(word);
      if (whole >= 0) return ids->push_back(whole);
    }
    parts.clear();
    for (const char byte : word) {
      const int32_t id = pairs.byte_tokens_[static_cast<uint8_t>(byte)];
      const int32_t place = static_cast<int32_t>(parts.size());
      if (id >= 0) parts.push_back({id, place - 1, place + 1});
    }
    if (parts.empty()) return;
    parts.back().after = -1;
    merge_all();
    for (const Part& part : parts) {
      if (part.id >= 0) ids->push_back(part.id);
    }
  }

  Part& part(int32_t place) { return parts[static_cast<size_t>(place)]; }

  void propose(int32_t left) {
    const int32_t right = part(left).after;
    if (right < 0) return;
    const Merge* merge = pairs.find(part(left).id, part(right).id);
    if (merge != nullptr) candidates.push({merge, left});
  }

  void merge_all() {
    for (size_t i = 0; i < parts.size(); ++i) propose(static_cast<int32_t>(i));
    while (!candidates.empty()) {
      const auto [merge, place] = candidates.top();
      candidates.pop();
      Part& left = part(place);
      if (left.id != merge->left || left.after < 0) continue;
      Part& right = part(left.after);
      if (right.id != merge->right) continue;
      left.id = merge->result;
      left.after = right.after;
      right.id = -1;
      if (left.after >= 0) part(left.after).before = place;
      if (left.before >= 0) propose(left.before);
      propose(place);
    }
  }
};

std::vector<int32_t> BytePairs::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  Merging merging{*this, {}, {}};
  tokens_.split(
      text,
      [&](std::string_view stretch) {
        for (size_t begin = 0; begin < stretch.size();) {
          const size_t end = word_end(stretch, begin, rules_.words);
          merging.append(stretch.substr(begin, end - begin), &ids);
          begin = end;
        }
      },
      [&](int32_t whole) { ids.push_back(whole); });
  return ids;
}

}  // namespace octavo
