#include "token_table.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>

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

bool is_never_cut(int32_t kind) {
  return is_kind(kind, TokenKind::Control) || is_kind(kind, TokenKind::Unknown) ||
         is_kind(kind, TokenKind::UserDefined);
}

}  // namespace

bool StoredStrings::next(std::string_view* string) {
  if (left_.size() < kLengthBytes) return false;
  const uint64_t length = read_length(left_.data());
  if (length > left_.size() - kLengthBytes) return false;
  *string = left_.substr(kLengthBytes, length);
  left_.remove_prefix(kLengthBytes + length);
  return true;
}

TokenTable::TokenTable(std::string_view stored, const std::vector<int32_t>& kinds) : stored_(stored) {
  read(stored, kinds.size());
  size_t capacity = 16;
  while (capacity < 2 * starts_.size()) capacity *= 2;
  slots_.assign(capacity, -1);
  for (int32_t id = 0; id < size(); ++id) insert(id);
  note_whole_tokens(kinds);
}

void TokenTable::read(std::string_view stored, size_t count) {
  starts_.reserve(count);
  StoredStrings strings(stored);
  for (std::string_view text; starts_.size() < count;) {
    if (!strings.next(&text)) throw std::invalid_argument("there are fewer tokens than kinds");
    if (!is_utf8(text)) {
      throw std::invalid_argument("token " + std::to_string(starts_.size()) + " is not valid UTF-8");
    }
    starts_.push_back(static_cast<uint64_t>(text.data() - stored.data()));
  }
}

void TokenTable::insert(int32_t id) {
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

void TokenTable::note_whole_tokens(const std::vector<int32_t>& kinds) {
  is_whole_.assign(starts_.size(), false);
  for (int32_t id = 0; id < size(); ++id) {
    if (!is_never_cut(kinds[static_cast<size_t>(id)])) continue;
    const std::string_view text = token(id);
    if (text.empty()) continue;
    is_whole_[static_cast<size_t>(id)] = true;
    whole_lengths_[static_cast<uint8_t>(text[0])].push_back(static_cast<uint32_t>(text.size()));
  }
  for (std::vector<uint32_t>& lengths : whole_lengths_) {
    std::sort(lengths.begin(), lengths.end(), std::greater<>());
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  }
}

std::string_view TokenTable::token(int32_t id) const {
  if (id < 0 || id >= size()) return {};
  const uint64_t start = starts_[static_cast<size_t>(id)];
  return stored_.substr(start, read_length(stored_.data() + start - kLengthBytes));
}

int32_t TokenTable::find(std::string_view text) const {
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash_of(text) & mask; slots_[slot] >= 0; slot = (slot + 1) & mask) {
    if (token(slots_[slot]) == text) return slots_[slot];
  }
  return -1;
}

int32_t TokenTable::whole_at(std::string_view text, size_t position) const {
  for (const uint32_t length : whole_lengths_[static_cast<uint8_t>(text[position])]) {
    if (length > text.size() - position) continue;
    const int32_t id = find(text.substr(position, length));
    if (id >= 0 && is_whole_[static_cast<size_t>(id)]) return id;
  }
  return -1;
}

}  // namespace octavo
