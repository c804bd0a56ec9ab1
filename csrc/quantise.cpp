#include "quantise.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "packing.hpp"
#include "simd/half.hpp"

namespace octavo {
namespace {

constexpr float kLargestE4M3 = 448.0f;

float half_value(float value) { return f16_to_float(float_to_f16(value)); }

void put_half(uint8_t* out, float value) {
  const uint16_t half = float_to_f16(value);
  std::memcpy(out, &half, sizeof half);
}

void put_float(uint8_t* out, float value) { std::memcpy(out, &value, sizeof value); }

// The least of a NaN: std::max gives its first argument then.
int clamped(float value, int least, int most) {
  return static_cast<int>(std::min(std::max(static_cast<float>(least), value), static_cast<float>(most)));
}

// 0 for a scale of 0, and for one so small that its inverse is no number: what it stands for is 0 to float16.
float inverse_of(float scale) {
  const float inverse = 1.0f / scale;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

float largest_magnitude(const float* x, int64_t count) {
  float largest = 0.0f;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

// Column i in the low, 16 + i in the high half of byte i, for each 32 columns.
void put_nibbles(const int* q, int64_t count, uint8_t* out) {
  for (int64_t first = 0; first < count; first += kGroup, q += kGroup) {
    for (int i = 0; i < 16; ++i) *out++ = static_cast<uint8_t>(q[i] | (q[16 + i] << 4));
  }
}

void quantise_q8_0(const float* x, uint8_t* out) {
  const float d = largest_magnitude(x, kGroup) / 127.0f, inverse = inverse_of(d);
  put_half(out, d);
  for (int i = 0; i < kGroup; ++i) out[2 + i] = static_cast<uint8_t>(static_cast<int>(std::round(x[i] * inverse)));
}

void quantise_q4_0(const float* x, uint8_t* out) {
  float furthest = 0.0f;
  for (int i = 0; i < kGroup; ++i) {
    if (std::fabs(x[i]) > std::fabs(furthest)) furthest = x[i];
  }
  const float d = furthest / -8.0f, inverse = inverse_of(d);
  int q[kGroup];
  for (int i = 0; i < kGroup; ++i) q[i] = clamped(x[i] * inverse + 8.5f, 0, 15);
  put_half(out, d);
  put_nibbles(q, kGroup, out + 2);
}

void quantise_q4_1(const float* x, uint8_t* out) {
  const float least = *std::min_element(x, x + kGroup), most = *std::max_element(x, x + kGroup);
  const float d = (most - least) / 15.0f, inverse = inverse_of(d);
  int q[kGroup];
  for (int i = 0; i < kGroup; ++i) q[i] = clamped((x[i] - least) * inverse + 0.5f, 0, 15);
  put_half(out, d);
  put_half(out + 2, least);
  put_nibbles(q, kGroup, out + 4);
}

// ---- Q4_K ----

struct Affine {
  float scale, minimum;  // x is about scale * q - minimum, q in 0..15, minimum >= 0
};

float error_of(const float* x, Affine affine) {
  float error = 0.0f;
  const float inverse = inverse_of(affine.scale);
  for (int i = 0; i < kGroup; ++i) {
    const int q = clamped(std::nearbyint((x[i] + affine.minimum) * inverse), 0, 15);
    const float difference = affine.scale * static_cast<float>(q) - affine.minimum - x[i];
    error += difference * difference;
  }
  return error;
}

// The line through (q, x) with the least squares, where q are the codes that `affine` gives.
Affine refitted(const float* x, Affine affine) {
  float sum_q = 0.0f, sum_qq = 0.0f, sum_x = 0.0f, sum_qx = 0.0f;
  for (int i = 0; i < kGroup; ++i) {
    const float q = static_cast<float>(clamped(std::nearbyint((x[i] + affine.minimum) / affine.scale), 0, 15));
    sum_q += q;
    sum_qq += q * q;
    sum_x += x[i];
    sum_qx += q * x[i];
  }
  const float count = static_cast<float>(kGroup), spread = count * sum_qq - sum_q * sum_q;
  if (spread <= 0.0f) return affine;
  const float scale = (count * sum_qx - sum_q * sum_x) / spread;
  const float minimum = (scale * sum_q - sum_x) / count;
  if (minimum >= 0.0f) return {scale, minimum};
  return {sum_qq > 0.0f ? sum_qx / sum_qq : 0.0f, 0.0f};
}

Affine best_affine(const float* x) {
  const float least = std::min(*std::min_element(x, x + kGroup), 0.0f), most = *std::max_element(x, x + kGroup);
  if (most <= least) return {0.0f, -least};
  Affine best = {(most - least) / 15.0f, -least};
  float best_error = error_of(x, best);
  for (int step = -8; step <= 8; ++step) {  // ranges a little wider and narrower than that of the numbers
    const Affine start = {(most - least) / (15.0f + 0.15f * static_cast<float>(step)), -least};
    const Affine candidate = refitted(x, start);
    if (candidate.scale <= 0.0f) continue;
    const float error = error_of(x, candidate);
    if (error < best_error) best_error = error, best = candidate;
  }
  return best;
}

void quantise_q4_k(const float* x, uint8_t* out) {
  Affine groups[8];
  float most_scale = 0.0f, most_minimum = 0.0f;
  for (int g = 0; g < 8; ++g) {
    groups[g] = best_affine(x + kGroup * g);
    most_scale = std::max(most_scale, groups[g].scale);
    most_minimum = std::max(most_minimum, groups[g].minimum);
  }
  const float d = half_value(most_scale / 63.0f), dmin = half_value(most_minimum / 63.0f);
  put_half(out, d);
  put_half(out + 2, dmin);
  uint8_t* packed = out + 4;
  std::memset(packed, 0, 12);
  int q[256];
  for (int g = 0; g < 8; ++g) {
    const int scale = d > 0.0f ? clamped(std::nearbyint(groups[g].scale / d), 0, 63) : 0;
    const int minimum = dmin > 0.0f ? clamped(std::nearbyint(groups[g].minimum / dmin), 0, 63) : 0;
    if (g < 4) {
      packed[g] |= static_cast<uint8_t>(scale);
      packed[g + 4] |= static_cast<uint8_t>(minimum);
    } else {
      packed[g + 4] |= static_cast<uint8_t>((scale & 15) | ((minimum & 15) << 4));
      packed[g - 4] |= static_cast<uint8_t>((scale >> 4) << 6);
      packed[g] |= static_cast<uint8_t>((minimum >> 4) << 6);
    }
    const float step = d * static_cast<float>(scale), offset = dmin * static_cast<float>(minimum);
    for (int i = 0; i < kGroup; ++i) {
      const float exact = step > 0.0f ? (x[kGroup * g + i] + offset) / step : 0.0f;
      q[kGroup * g + i] = clamped(std::nearbyint(exact), 0, 15);
    }
  }
  for (int pair = 0; pair < 4; ++pair) {  // two groups in the halves of 32 bytes
    for (int i = 0; i < kGroup; ++i) {
      out[16 + 32 * pair + i] = static_cast<uint8_t>(q[64 * pair + i] | (q[64 * pair + 32 + i] << 4));
    }
  }
}

// ---- our own types ----

// Numbers of a group as codes: number = scale * (code - zero).
struct IntGroup {
  float scale;
  int zero;
};

IntGroup int4_group(const float* x, int64_t count) {
  const float least = std::min(*std::min_element(x, x + count), 0.0f);
  const float most = std::max(*std::max_element(x, x + count), 0.0f);
  const float d = half_value((most - least) / 15.0f);
  return {d, d > 0.0f ? clamped(std::nearbyint(-least * (1.0f / d)), 0, 15) : 0};
}

IntGroup int8_group(const float* x, int64_t count) {
  return {half_value(largest_magnitude(x, count) / 127.0f), 0};
}

void int_codes(const float* x, int64_t count, const IntGroup& group, int least, int most, int* q) {
  const float inverse = inverse_of(group.scale);
  for (int64_t i = 0; i < count; ++i) {
    q[i] = clamped(std::nearbyint(x[i] * inverse) + static_cast<float>(group.zero), least, most);
  }
}

void quantise_int4(const float* x, int64_t count, uint8_t* out) {
  int q[128];
  const IntGroup group = int4_group(x, count);
  int_codes(x, count, group, 0, 15, q);
  put_float(out, group.scale);
  out[4] = static_cast<uint8_t>(group.zero);
  put_nibbles(q, count, out + 8);
}

void quantise_int8(const float* x, int64_t count, uint8_t* out) {
  int q[128];
  const IntGroup group = int8_group(x, count);
  int_codes(x, count, group, -127, 127, q);
  put_float(out, group.scale);
  for (int64_t i = 0; i < count; ++i) out[8 + i] = static_cast<uint8_t>(q[i]);
}

// The nearest E4M3, to even on a tie. Only for magnitudes up to 448.
uint8_t e4m3_of(float value) {
  const float magnitude = std::fabs(value);
  int exponent = -6;
  if (magnitude >= 0x1p-6f) exponent = std::ilogb(magnitude);
  const int q = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));  // 0..16
  const int code = std::min(((exponent + 6) << 3) + q, 0x7e);
  return static_cast<uint8_t>(code | (std::signbit(value) ? 0x80 : 0));
}

void quantise_fp8(const float* x, int64_t count, float scale, uint8_t* out) {
  put_float(out, scale);
  for (int64_t i = 0; i < count; ++i) {
    const float exact = scale > 0.0f ? x[i] / scale : 0.0f;
    out[4 + i] = e4m3_of(std::min(std::max(exact, -kLargestE4M3), kLargestE4M3));
  }
}

void quantise_block(WeightType to, const float* x, float row_scale, uint8_t* out) {
  const int64_t size = panel_layout(to).block;
  switch (to) {
    case WeightType::Q8_0: return quantise_q8_0(x, out);
    case WeightType::Q4_0: return quantise_q4_0(x, out);
    case WeightType::Q4_1: return quantise_q4_1(x, out);
    case WeightType::Q4_K: return quantise_q4_k(x, out);
    case WeightType::INT4_32:
    case WeightType::INT4_128: return quantise_int4(x, size, out);
    case WeightType::INT8_32:
    case WeightType::INT8_128: return quantise_int8(x, size, out);
    default: return quantise_fp8(x, size, row_scale, out);
  }
}

float float_at(WeightType from, const uint8_t* data, int64_t index) {
  if (from == WeightType::F32) {
    float value;
    std::memcpy(&value, data + 4 * index, sizeof value);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, data + 2 * index, sizeof half);
  return from == WeightType::F16 ? f16_to_float(half) : bf16_to_float(half);
}

}  // namespace

bool is_quantisable(WeightType to) {
  switch (to) {
    case WeightType::Q8_0:
    case WeightType::Q4_0:
    case WeightType::Q4_1:
    case WeightType::Q4_K:
    case WeightType::INT4_32:
    case WeightType::INT4_128:
    case WeightType::INT8_32:
    case WeightType::INT8_128:
    case WeightType::FP8_32:
    case WeightType::FP8_128: return true;
    default: return false;
  }
}

std::vector<uint8_t> quantise_rows(WeightType from, const uint8_t* data, int64_t rows, int64_t cols,
                                   WeightType to) {
  if (is_quantised(from) || !is_quantisable(to)) throw std::invalid_argument("such types are not quantised");
  const PanelLayout layout = panel_layout(to);
  if (cols % layout.block != 0) throw std::invalid_argument("the columns are no whole blocks");
  std::vector<uint8_t> result(static_cast<size_t>(rows * file_row_bytes(to, cols)));
  std::vector<float> x(static_cast<size_t>(cols));
  uint8_t* out = result.data();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      x[static_cast<size_t>(col)] = float_at(from, data, row * cols + col);
      if (!std::isfinite(x[static_cast<size_t>(col)])) {
        throw std::domain_error("it holds a number that is not finite");
      }
    }
    const float row_scale = largest_magnitude(x.data(), cols) / kLargestE4M3;
    for (int64_t col = 0; col < cols; col += layout.block, out += layout.file_block) {
      quantise_block(to, x.data() + col, row_scale, out);
    }
  }
  return result;
}

namespace {

void check_rounding(const RowRounding& args) {
  if (is_quantised(args.from)) throw std::invalid_argument("only float rows are quantised");
  if (args.bits != 4 && args.bits != 8) throw std::invalid_argument("integers have 4 or 8 bits");
  if (args.group < 8 || args.group % 8 != 0 || args.cols % args.group != 0) {
    throw std::invalid_argument("the columns are no whole groups");
  }
}

// One row, times its factors. Throws std::domain_error for numbers that are not finite.
void read_row(const RowRounding& args, int64_t row, float* x) {
  const float factor = args.row_factors == nullptr ? 1.0f : args.row_factors[row];
  for (int64_t col = 0; col < args.cols; ++col) {
    x[col] = float_at(args.from, args.data, row * args.cols + col) * factor;
    if (args.column_factors != nullptr) x[col] *= args.column_factors[col];
    if (!std::isfinite(x[col])) throw std::domain_error("it holds a number that is not finite");
  }
}

IntGroup rounded_group(const RowRounding& args, const float* x, int* q) {
  const bool is_int4 = args.bits == 4;
  const IntGroup group = is_int4 ? int4_group(x, args.group) : int8_group(x, args.group);
  int_codes(x, args.group, group, is_int4 ? 0 : -127, is_int4 ? 15 : 127, q);
  return group;
}

}  // namespace

IntTables rounded_tables(const RowRounding& args) {
  check_rounding(args);
  const int64_t num_groups = args.cols / args.group;
  IntTables tables;
  if (args.bits == 4) tables.zeros.resize(static_cast<size_t>((args.rows + 7) / 8 * num_groups * 4));
  std::vector<float> x(static_cast<size_t>(args.cols));
  std::vector<int> q(static_cast<size_t>(args.group));
  for (int64_t row = 0; row < args.rows; ++row) {
    read_row(args, row, x.data());
    for (int64_t number = 0; number < num_groups; ++number) {
      const IntGroup group = rounded_group(args, x.data() + number * args.group, q.data());
      uint8_t half[2];
      put_half(half, group.scale);
      tables.scales.insert(tables.scales.end(), half, half + 2);
      if (args.bits == 8) {
        for (const int code : q) tables.words.push_back(static_cast<uint8_t>(code + 128));
        continue;
      }
      const int64_t word = row / 8 * num_groups + number, nibble = row % 8;
      tables.zeros[static_cast<size_t>(4 * word + nibble / 2)] |=
          static_cast<uint8_t>(group.zero << (4 * (nibble % 2)));
      for (size_t i = 0; i < q.size(); i += 2) {
        tables.words.push_back(static_cast<uint8_t>(q[i] | (q[i + 1] << 4)));
      }
    }
  }
  return tables;
}

double rounding_error(const RowRounding& args, const float* weights, int64_t step) {
  check_rounding(args);
  if (step < 1) throw std::invalid_argument("the step is at least one row");
  std::vector<float> x(static_cast<size_t>(args.cols));
  std::vector<int> q(static_cast<size_t>(args.group));
  double sum = 0.0;
  for (int64_t row = 0; row < args.rows; row += step) {
    read_row(args, row, x.data());
    for (int64_t first = 0; first < args.cols; first += args.group) {
      const IntGroup group = rounded_group(args, x.data() + first, q.data());
      for (int64_t i = 0; i < args.group; ++i) {
        const float error = group.scale * static_cast<float>(q[static_cast<size_t>(i)] - group.zero) - x[first + i];
        const float factor = args.column_factors == nullptr ? 1.0f : args.column_factors[first + i];
        sum += static_cast<double>(weights[first + i]) * (error / factor) * (error / factor);
      }
    }
  }
  return sum;
}

void add_columns(const float* x, int64_t rows, int64_t cols, double* magnitudes, double* squares) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const double value = x[row * cols + col];
      magnitudes[col] += std::fabs(value);
      squares[col] += value * value;
    }
  }
}

}  // namespace octavo
