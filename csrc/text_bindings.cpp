#include "text_bindings.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>

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

}  // namespace

void bind_text(nb::module_& module) {
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
