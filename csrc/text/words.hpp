// How a text is cut into words before byte pairs are merged: the expressions of GPT-2 and Llama 3 by hand.
//
// Owns the three rules that `text/pre_tokenizers.py` has as regular expressions; tests compare the two.
#pragma once

#include <cstdint>
#include <string_view>

namespace octavo {

enum class WordRule : int32_t {
  Gpt2,            // contractions, letters, numbers, signs, white space
  DigitsThenGpt2,  // each number on its own first
  Llama3,          // up to three numbers; a sign joins the letters behind it
};

// The end of the word that begins at `begin`. `text` is UTF-8; for DigitsThenGpt2 white space before a number
// is all that there is, as if the text ended there.
size_t word_end(std::string_view text, size_t begin, WordRule rule);

}  // namespace octavo
