#include "convert.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "packing.hpp"
#include "simd/half.hpp"

namespace octavo {
namespace {

constexpr int64_t kRowsAtOnce = 32;  // their codes stay in the second-level cache

void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

int place(WordOrder order, int64_t index) {
  static const int awq[] = {0, 4, 1, 5, 2, 6, 3, 7};
  switch (order) {
    case WordOrder::Awq: return awq[index];
    case WordOrder::Swapped: return static_cast<int>(index ^ 1);
    case WordOrder::Natural: break;
  }
  return static_cast<int>(index);
}

int bytes_of(ScaleType type) {
  switch (type) {
    case ScaleType::F32: return 4;
    case ScaleType::F16:
    case ScaleType::BF16: return 2;
    case ScaleType::E4M3:
    case ScaleType::E8M0: return 1;
  }
  return 0;
}

uint32_t word_at(const PackedInts& ints, int64_t index) {
  if (ints.word_bits == 8) return ints.data[index];
  uint32_t word;
  std::memcpy(&word, ints.data + 4 * index, sizeof word);
  return word;
}

// The nibbles of 32 columns as 16 bytes: column i in the low, 16 + i in the high half of byte i.
void put_nibbles(const uint8_t* codes, int64_t count, uint8_t* out) {
  for (int64_t first = 0; first < count; first += kGroup, codes += kGroup) {
    for (int i = 0; i < 16; ++i) *out++ = static_cast<uint8_t>(codes[i] | (codes[16 + i] << 4));
  }
}

void put_float(uint8_t* out, float value) { std::memcpy(out, &value, sizeof value); }

struct BlockWriter {
  const ConvertArgs& args;
  int64_t row;

  int64_t group_of(int64_t column) const {
    const int64_t from = args.columns ? args.columns[column] : column;
    return args.groups ? args.groups[from] : from / args.scales->cols_each;
  }
  float scale(int64_t column) const { return args.scales->value(row, group_of(column)); }
  int zero(int64_t column) const {
    if (!args.zeros) return args.zero_point;
    uint8_t value;
    const int32_t group = static_cast<int32_t>(group_of(column));
    PackedInts one = *args.zeros;
    one.cols = 1;
    one.read_rows(row, 1, &group, &value, 1);
    return (value + args.zero_point) & ((1 << one.bits) - 1);
  }

  // One block of `size` columns from `column` on.
  void write(const uint8_t* codes, int64_t column, int64_t size, uint8_t* out) const {
    switch (args.to) {
      case WeightType::INT4_32:
      case WeightType::INT4_128:
        put_float(out, scale(column));
        out[4] = static_cast<uint8_t>(zero(column));
        return put_nibbles(codes, size, out + 8);
      case WeightType::INT8_32:
      case WeightType::INT8_128:
        put_float(out, scale(column));
        out[4] = static_cast<uint8_t>(zero(column) - 128);
        for (int64_t i = 0; i < size; ++i) out[8 + i] = codes[i] ^ 0x80;
        return;
      case WeightType::FP8_32:
      case WeightType::FP8_128:
        put_float(out, scale(column));
        std::memcpy(out + 4, codes, static_cast<size_t>(size));
        return;
      case WeightType::FP4_16:
        put_float(out, scale(column));
        put_float(out + 4, scale(column + 16));
        return put_nibbles(codes, size, out + 8);
      case WeightType::MXFP4:
        out[0] = args.scales->data[row * args.scales->row_stride + group_of(column)];
        return put_nibbles(codes, size, out + 1);
      default:
        put_float(out, scale(column));
        put_nibbles(codes, size, out + 4);
    }
  }
};

void check_tables(const ConvertArgs& args) {
  const PanelLayout layout = panel_layout(args.to);
  const bool is_own = args.to >= WeightType::INT4_32 && args.to != WeightType::INT8_K;
  require(is_own || args.to == WeightType::MXFP4, "no rows of that type are made of codes and scales");
  require(args.rows == args.codes->rows && args.cols == args.codes->cols, "the codes have another shape");
  require(args.cols % layout.block == 0, "the columns are no whole blocks");
  require(args.row_begin >= 0 && args.row_begin <= args.row_end && args.row_end <= args.rows, "no such rows");
  require(args.scales->rows * args.scales->rows_each >= args.rows, "there are not enough rows of scales");
  if (args.to == WeightType::MXFP4) require(args.scales->type == ScaleType::E8M0, "MXFP4 has scales of E8M0");
  args.codes->check();
  args.scales->check();
  if (args.zeros) {
    args.zeros->check();
    require(args.zeros->rows == args.rows && args.zeros->cols == args.scales->groups,
            "the zero points have another shape than the scales");
  }
  const int64_t groups = args.scales->groups;
  for (int64_t column = 0; column < args.cols; ++column) {
    const int64_t from = args.columns ? args.columns[column] : column;
    require(from >= 0 && from < args.cols, "a column is out of range");
    const int64_t group = args.groups ? args.groups[from] : from / args.scales->cols_each;
    require(group >= 0 && group < groups, "a group of scales is out of range");
  }
}

}  // namespace

void PackedInts::check() const {
  require(bits == 2 || bits == 4 || bits == 8, "numbers must have 2, 4 or 8 bits");
  require(word_bits == 8 || word_bits == 32, "words must have 8 or 32 bits");
  require(order == WordOrder::Natural || order == WordOrder::Awq || order == WordOrder::Swapped,
          "no such order of numbers in a word: 0 (natural), 1 (AWQ) or 2 (upper half first)");
  require(order != WordOrder::Awq || (bits == 4 && word_bits == 32), "that order is one of eight nibbles");
  require(order != WordOrder::Swapped || bits == 4, "that order is one of nibbles");
  require(rows > 0 && cols > 0 && row_stride >= 0 && col_stride >= 0, "a table needs rows and columns");
  const int64_t each = word_bits / bits;
  const int64_t last_row = (rows - 1) / (packs_rows ? each : 1), last_col = (cols - 1) / (packs_rows ? 1 : each);
  const int64_t words = last_row * row_stride + last_col * col_stride + 1;
  require(words * (word_bits / 8) <= num_bytes, "the packed numbers are too few");
}

// Neighbours of a word, and words that lie side by side, are read together: rows of many formats are columns of
// the table as it is stored.
void PackedInts::read_rows(int64_t first, int64_t count, const int32_t* columns, uint8_t* out,
                           int64_t out_stride) const {
  const int64_t each = word_bits / bits, end = first + count;
  const uint32_t mask = (1u << bits) - 1u, half = is_signed ? 1u << (bits - 1) : 0u;
  int shifts[16];
  for (int64_t i = 0; i < each; ++i) shifts[i] = bits * place(order, i);
  const auto number = [&](uint32_t word, int64_t slot) {
    return static_cast<uint8_t>(((word >> shifts[slot]) + half) & mask);
  };
  if (packs_rows) {
    const int64_t first_word = first / each * row_stride, first_slot = first % each;
    for (int64_t i = 0; i < cols; ++i) {
      int64_t index = first_word + (columns ? columns[i] : i) * col_stride, slot = first_slot;
      uint32_t word = word_at(*this, index);
      for (int64_t row = 0; row < count; ++row) {
        if (slot == each) {
          slot = 0;
          word = word_at(*this, index += row_stride);
        }
        out[row * out_stride + i] = number(word, slot++);
      }
    }
  } else if (columns) {
    for (int64_t i = 0; i < cols; ++i) {
      const int64_t column = columns[i] / each * col_stride, slot = columns[i] % each;
      for (int64_t row = first; row < end; ++row) {
        out[(row - first) * out_stride + i] = number(word_at(*this, row * row_stride + column), slot);
      }
    }
  } else {
    for (int64_t i = 0; i < cols; i += each) {
      const int64_t stop = std::min(each, cols - i);
      for (int64_t row = first; row < end; ++row) {
        const uint32_t word = word_at(*this, row * row_stride + i / each * col_stride);
        uint8_t* at = out + (row - first) * out_stride + i;
        for (int64_t slot = 0; slot < stop; ++slot) at[slot] = number(word, slot);
      }
    }
  }
}

void Scales::check() const {
  require(bytes_of(type) > 0, "no such type of scales");
  require(rows > 0 && groups > 0 && row_stride >= 0 && group_stride >= 0 && rows_each > 0 && cols_each > 0,
          "a table of scales needs rows and groups");
  const int64_t count = (rows - 1) * row_stride + (groups - 1) * group_stride + 1;
  require(count * bytes_of(type) <= num_bytes, "the scales are too few");
}

float Scales::value(int64_t row, int64_t group) const {
  const int64_t index = row / rows_each * row_stride + group * group_stride;
  const uint8_t* at = data + index * bytes_of(type);
  uint32_t word = 0;
  std::memcpy(&word, at, static_cast<size_t>(bytes_of(type)));
  const uint16_t half = static_cast<uint16_t>(word);
  switch (type) {
    case ScaleType::F32: return factor * float_from_bits(word);
    case ScaleType::F16: return factor * f16_to_float(half);
    case ScaleType::BF16: return factor * bf16_to_float(half);
    case ScaleType::E4M3: return factor * (256.0f * f16_to_float(e4m3_to_f16(static_cast<uint8_t>(word))));
    case ScaleType::E8M0: break;
  }
  return factor * float_from_bits(word << 23);
}

std::vector<uint8_t> convert_rows(const ConvertArgs& args) {
  check_tables(args);
  const PanelLayout layout = panel_layout(args.to);
  const int64_t row_bytes = file_row_bytes(args.to, args.cols);
  std::vector<uint8_t> result(static_cast<size_t>((args.row_end - args.row_begin) * row_bytes));
  const int64_t stride = args.cols + 64;  // or rows of 4096 would all fall into one set of the cache
  std::vector<uint8_t> codes(static_cast<size_t>(kRowsAtOnce * stride));
  uint8_t* out = result.data();
  for (int64_t first = args.row_begin; first < args.row_end; first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, args.row_end - first);
    args.codes->read_rows(first, count, args.columns, codes.data(), stride);
    for (int64_t i = 0; i < count; ++i) {
      const BlockWriter writer{args, first + i};
      const uint8_t* row = codes.data() + i * stride;
      for (int64_t column = 0; column < args.cols; column += layout.block, out += layout.file_block) {
        writer.write(row + column, column, layout.block, out);
      }
    }
  }
  return result;
}

std::vector<float> nested_scales(const uint8_t* codes, int64_t count, const float* map, const float* scales,
                                 int64_t block, float offset) {
  std::vector<float> result(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    result[static_cast<size_t>(i)] = map[codes[i]] * scales[i / block] + offset;
  }
  return result;
}

}  // namespace octavo
