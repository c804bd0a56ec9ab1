#include "text_bindings.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string_view>

#include "python_bytes.hpp"
#include "text/byte_pairs.hpp"
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

std::string_view view_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(bytes.size())};
}

// A vocabulary and the memory that it lies in. `make` is called without the GIL.
template <typename Pieces>
struct Stored {
  template <typename Make>
  Stored(const nb::object& tokens, const Make& make) : memory(tokens) {
    const std::string_view text = view_of(memory);
    const nb::gil_scoped_release release;
    pieces = make(text);
  }

  Bytes memory;
  std::unique_ptr<const Pieces> pieces;
};

using StoredPieces = Stored<SentencePiece>;
using StoredPairs = Stored<BytePairs>;

void make_pieces(StoredPieces* self, const nb::object& tokens, const nb::object& kinds,
                 const nb::object& scores, std::string space, bool adds_space, int32_t unknown) {
  const std::vector<int32_t> all_kinds = copy_numbers<int32_t>(kinds);
  const std::vector<float> all_scores = copy_numbers<float>(scores);
  new (self) StoredPieces(tokens, [&](std::string_view text) {
    return std::make_unique<SentencePiece>(text, all_kinds, all_scores,
                                           SentencePieceRules{std::move(space), adds_space, unknown});
  });
}

void make_pairs(StoredPairs* self, const nb::object& tokens, const nb::object& kinds,
                const nb::object& merges, WordRule words, bool ignores_merges) {
  const std::vector<int32_t> all_kinds = copy_numbers<int32_t>(kinds);
  const Bytes all_merges(merges);
  new (self) StoredPairs(tokens, [&](std::string_view text) {
    return std::make_unique<BytePairs>(text, all_kinds, view_of(all_merges),
                                       BytePairRules{words, ignores_merges});
  });
}

// What both have. The text of a token may be asked for by any thread.
template <typename Pieces>
void bind_pieces(nb::class_<Stored<Pieces>>& type) {
  type.def(
          "encode",
          [](const Stored<Pieces>& self, const nb::bytes& text) {
            const std::string_view view = view_of(text);
            const nb::gil_scoped_release release;
            return self.pieces->encode(view);
          },
          "text"_a)
      .def(
          "token",
          [](const Stored<Pieces>& self, int32_t id) {
            return to_bytes(self.pieces->tokens().token(id));
          },
          "id"_a)
      .def(
          "find",
          [](const Stored<Pieces>& self, const nb::bytes& token) {
            return self.pieces->tokens().find(view_of(token));
          },
          "token"_a)
      .def_prop_ro("size", [](const Stored<Pieces>& self) { return self.pieces->tokens().size(); });
}

// ---- lists of strings as GGUF stores them: each its length (u64) and its bytes ----

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
  StoredStrings strings(view_of(bytes));
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
  StoredStrings strings(view_of(bytes));
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
  auto pieces = nb::class_<StoredPieces>(module, "SentencePiece")
                    .def("__init__", make_pieces, "stored"_a, "kinds"_a, "scores"_a, "space"_a,
                         "adds_space"_a, "unknown"_a);
  bind_pieces(pieces);
  nb::enum_<WordRule>(module, "WordRule")
      .value("GPT2", WordRule::Gpt2)
      .value("DIGITS_THEN_GPT2", WordRule::DigitsThenGpt2)
      .value("LLAMA3", WordRule::Llama3);
  auto pairs = nb::class_<StoredPairs>(module, "BytePairs")
                   .def("__init__", make_pairs, "stored"_a, "kinds"_a, "merges"_a, "words"_a,
                        "ignores_merges"_a);
  bind_pieces(pairs);
}

}  // namespace octavo
