#include "text_bindings.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string_view>

#include "python_bytes.hpp"
#include "text/sentencepiece.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

template <typename T>
std::vector<T> copy_numbers(const nb::object& buffer) {
  const Bytes bytes(buffer);
  if (bytes.size() % static_cast<int64_t>(sizeof(T)) != 0) {
    throw std::invalid_argument("expected numbers of four bytes");
  }
  std::vector<T> numbers(static_cast<size_t>(bytes.size()) / sizeof(T));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), static_cast<size_t>(bytes.size()));
  return numbers;
}

std::string_view view_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

nb::bytes to_bytes(std::string_view text) { return nb::bytes(text.data(), text.size()); }

// A vocabulary and the memory that it lies in.
struct StoredPieces {
  StoredPieces(const nb::object& stored, const nb::object& kinds, const nb::object& scores,
               SentencePieceRules rules)
      : memory(stored) {
    const std::vector<int32_t> all_kinds = copy_numbers<int32_t>(kinds);
    const std::vector<float> all_scores = copy_numbers<float>(scores);
    const std::string_view tokens(reinterpret_cast<const char*>(memory.data()),
                                  static_cast<size_t>(memory.size()));
    const nb::gil_scoped_release release;
    pieces = std::make_unique<SentencePiece>(tokens, all_kinds, all_scores, std::move(rules));
  }

  Bytes memory;
  std::unique_ptr<const SentencePiece> pieces;
};

// ---- lists of strings as GGUF stores them: each its length (u64) and its bytes ----

// Steps over the strings of a list, and never beyond its bytes.
class StoredStrings {
 public:
  explicit StoredStrings(const Bytes& bytes)
      : at_(reinterpret_cast<const char*>(bytes.data())), left_(static_cast<uint64_t>(bytes.size())) {}

  // False at the end, and for a length that leads beyond it.
  bool next(std::string_view* string) {
    uint64_t length;
    if (left_ < sizeof length) return false;
    std::memcpy(&length, at_, sizeof length);
    if (length > left_ - sizeof length) return false;
    *string = {at_ + sizeof length, static_cast<size_t>(length)};
    at_ += sizeof length + length;
    left_ -= sizeof length + length;
    return true;
  }

 private:
  const char* at_;
  uint64_t left_;
};

// Bytes that `count` strings claim to take; -1 where a length lies beyond the end. The last string may reach
// beyond it.
int64_t stored_size(const nb::object& stored, int64_t count) {
  constexpr int64_t length_bytes = sizeof(uint64_t);
  const Bytes bytes(stored);
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t length;
    if (at > bytes.size() - length_bytes) return -1;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    const int64_t most = std::numeric_limits<int64_t>::max() - length_bytes - at;
    at += length_bytes + static_cast<int64_t>(std::min(length, static_cast<uint64_t>(most)));
  }
  return at;
}

// A str; null where the bytes are not UTF-8.
nb::object decoded(std::string_view string) {
  nb::object text = nb::steal(
      PyUnicode_DecodeUTF8(string.data(), static_cast<Py_ssize_t>(string.size()), nullptr));
  if (!text.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) nb::raise_python_error();
    PyErr_Clear();
  }
  return text;
}

// Ends before the first string that is not UTF-8.
nb::list stored_strings(const nb::object& stored) {
  const Bytes bytes(stored);
  StoredStrings strings(bytes);
  nb::list result;
  for (std::string_view string; strings.next(&string);) {
    const nb::object text = decoded(string);
    if (!text.is_valid()) break;
    result.append(text);
  }
  return result;
}

// Ends before the first string that is not UTF-8, or is not two words with a space between them.
nb::list stored_pairs(const nb::object& stored) {
  const Bytes bytes(stored);
  StoredStrings strings(bytes);
  nb::list result;
  for (std::string_view string; strings.next(&string);) {
    const size_t space = string.find(' ');
    if (space == std::string_view::npos || space + 1 == string.size()) break;
    const nb::object left = decoded(string.substr(0, space));
    if (!left.is_valid()) break;
    const nb::object right = decoded(string.substr(space + 1));
    if (!right.is_valid()) break;
    result.append(nb::make_tuple(left, right));
  }
  return result;
}

}  // namespace

void bind_text(nb::module_& module) {
  module.def("stored_size", stored_size, "stored"_a, "count"_a);
  module.def("stored_strings", stored_strings, "stored"_a);
  module.def("stored_pairs", stored_pairs, "stored"_a);
  nb::class_<StoredPieces>(module, "SentencePiece")
      .def(
          "__init__",
          [](StoredPieces* self, const nb::object& stored, const nb::object& kinds,
             const nb::object& scores, std::string space, bool adds_space, int32_t unknown) {
            new (self) StoredPieces(stored, kinds, scores, {std::move(space), adds_space, unknown});
          },
          "stored"_a, "kinds"_a, "scores"_a, "space"_a, "adds_space"_a, "unknown"_a)
      .def(
          "encode",
          [](const StoredPieces& self, const nb::bytes& text) {
            const std::string_view view = view_of(text);
            const nb::gil_scoped_release release;
            return self.pieces->encode(view);
          },
          "text"_a)
      .def(
          "token", [](const StoredPieces& self, int32_t id) { return to_bytes(self.pieces->token(id)); },
          "id"_a)
      .def(
          "find",
          [](const StoredPieces& self, const nb::bytes& token) {
            return self.pieces->find(view_of(token));
          },
          "token"_a)
      .def_prop_ro("size", [](const StoredPieces& self) { return self.pieces->size(); });
}

}  // namespace octavo
