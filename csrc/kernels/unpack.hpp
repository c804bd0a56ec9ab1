// From packed panels to float32 weights in registers: one policy per weight type.
//
// Owns: how each layout of packing.hpp is read and which float operations turn it into a weight. Does not
// know what the weights are for. Used by linear.hpp and embed.hpp.
//
// A policy `Unpack<L, type>` reads `L::kPanels` neighbouring panels, `stride` bytes apart, into vectors of
// L::kLanes rows, in *steps* of kStep columns. A step is one group, as two halves of four quads of columns;
// for float types it is a single quad.
//
//   kStep, kHalves, kQuads                     kStep = kHalves * kQuads * 4
//   kStepBytes                                 bytes of a step in one panel
//   Step begin(panel, stride, column)          the numbers of the step that starts at this column
//   Quad quad<h>(step, j)                      the raw weights of columns 16h + 4j .. 16h + 4j + 3
//   Floats value<h, i>(step, quad)             the weight of column 16h + 4j + i
//   Floats column(panel, stride, column)       one column; float types only, for what is left of a row
#pragma once

#include <cstdint>

#include "../packing.hpp"
#include "../simd/vec.hpp"

namespace octavo {
namespace {

// Quantised types. Each weight is one fused multiply-add, scale * q + offset with q >= 0. The product of an
// fp16 number, a sub-scale and q has at most 24 bits, so it is exact, and where the zero point is a
// constant (Q4_0: 8) so is the sum: the weight is the value of the format's definition, rounded to float32
// at most once.
template <class L, WeightType type>
struct Unpack {
  using Floats = typename L::Floats;
  using Ints = typename L::Ints;
  using Quad = Ints;  // four bytes per row

  static constexpr PanelLayout kLayout = panel_layout(type);
  static constexpr int kHalves = 2, kQuads = 4;
  static constexpr int64_t kStep = kGroup;
  static constexpr int64_t kStepBytes = kLayout.panel_group;

  // [0] is for the lower, [1] for the upper 16 columns of the group; they differ in Q6_K only.
  struct Step {
    const uint8_t* weights;
    int64_t stride;
    Floats scale[2];
    Floats offset[2];
  };

  static OCTAVO_INLINE Step begin(const uint8_t* panel, int64_t stride, int64_t column) {
    constexpr uint64_t block_columns = kLayout.block;
    constexpr int64_t block_bytes = kLayout.panel_header + kLayout.block / kGroup * kLayout.panel_group;
    const uint64_t index = static_cast<uint64_t>(column);
    const uint8_t* block = panel + static_cast<int64_t>(index / block_columns) * block_bytes;
    const int64_t group_index = static_cast<int64_t>(index % block_columns / kGroup);
    const uint8_t* group = block + kLayout.panel_header + group_index * kLayout.panel_group;

    if constexpr (type == WeightType::Q4_0) return centred(group, stride, 8.0f);
    if constexpr (type == WeightType::Q5_0) return centred(group, stride, 16.0f);
    if constexpr (type == WeightType::Q8_0) return signed_bytes(group, stride);
    if constexpr (type == WeightType::Q6_K) return with_two_scales(block, group, stride);
    if constexpr (kLayout.block == 256) return with_sub_scales(block, group, stride);
    return with_minimum(group, stride);
  }

  template <int h>
  static OCTAVO_INLINE Quad quad(const Step& step, int j) {
    if constexpr (type == WeightType::Q8_0) {
      return L::load_panels(step.weights + 32 * (4 * h + j), step.stride);
    }
    const Ints nibble = nibbles<h>(step, j);
    if constexpr (kHasFifthBits) return L::bit_or(nibble, fifth_bits<h>(step, j));
    if constexpr (type == WeightType::Q6_K) return L::bit_or(nibble, upper_bits<h>(step, j));
    return nibble;
  }

  template <int h, int i>
  static OCTAVO_INLINE Floats value(const Step& step, Quad bytes) {
    if constexpr (type == WeightType::Q8_0) {
      return L::mul(step.scale[0], L::to_floats(L::template byte_at_top<i>(bytes)));
    } else {
      const Floats q = L::to_floats(L::template byte<i>(bytes));
      return L::fma(step.scale[h], q, step.offset[h]);
    }
  }

 private:
  static constexpr bool kHasFifthBits =
      type == WeightType::Q5_0 || type == WeightType::Q5_1 || type == WeightType::Q5_K;
  static constexpr int64_t kNibbleBytes = 128;

  // ---- numbers of a group ----

  // d * (q - zero_point)
  static OCTAVO_INLINE Step centred(const uint8_t* group, int64_t stride, float zero_point) {
    const Floats d = L::load_panels_f16(group, stride);
    const Floats offset = L::mul(d, L::set1(-zero_point));
    return {group + 16, stride, {d, d}, {offset, offset}};
  }
  // d * q + m
  static OCTAVO_INLINE Step with_minimum(const uint8_t* group, int64_t stride) {
    const Floats d = L::load_panels_f16(group, stride);
    const Floats m = L::load_panels_f16(group + 16, stride);
    return {group + 32, stride, {d, d}, {m, m}};
  }
  // d * q with a signed byte q, which value() takes from the top of a lane, where it counts 2^24 times.
  static OCTAVO_INLINE Step signed_bytes(const uint8_t* group, int64_t stride) {
    const Floats scale = L::mul(L::load_panels_f16(group, stride), L::set1(0x1p-24f));
    return {group + 16, stride, {scale, scale}, {scale, scale}};
  }
  // (d * scale) * q - dmin * min
  static OCTAVO_INLINE Step with_sub_scales(const uint8_t* block, const uint8_t* group, int64_t stride) {
    const Floats d = L::load_panels_f16(block, stride);
    const Floats negative_dmin = L::mul(L::load_panels_f16(block + 16, stride), L::set1(-1.0f));
    const Floats scale = L::mul(d, L::to_floats(L::load_panels_u8(group, stride)));
    const Floats offset = L::mul(negative_dmin, L::to_floats(L::load_panels_u8(group + 8, stride)));
    return {group + 16, stride, {scale, scale}, {offset, offset}};
  }
  // (d * scale) * (q - 32), one scale for each half of the group
  static OCTAVO_INLINE Step with_two_scales(const uint8_t* block, const uint8_t* group, int64_t stride) {
    const Floats d = L::load_panels_f16(block, stride);
    const Floats lower = L::mul(d, L::to_floats(L::load_panels_i8(group, stride)));
    const Floats upper = L::mul(d, L::to_floats(L::load_panels_i8(group + 8, stride)));
    const Floats zero_point = L::set1(-32.0f);
    return {group + 16, stride, {lower, upper}, {L::mul(lower, zero_point), L::mul(upper, zero_point)}};
  }

  // ---- bits of four columns, each in its byte ----

  template <int h>
  static OCTAVO_INLINE Ints nibbles(const Step& step, int j) {
    Ints bytes = L::load_panels(step.weights + 32 * j, step.stride);
    if constexpr (h == 1) bytes = L::template shift_right<4>(bytes);
    return L::bit_and(bytes, L::set1_int(0x0f0f0f0f));
  }
  // Bit 4h + j of each byte, put at bit 4.
  template <int h>
  static OCTAVO_INLINE Ints fifth_bits(const Step& step, int j) {
    Ints bits = L::load_panels(step.weights + kNibbleBytes, step.stride);
    if constexpr (h == 0) bits = L::template shift_left<4>(bits);
    return L::bit_and(L::shift_right_by(bits, L::set1_int(j)), L::set1_int(0x10101010));
  }
  // Two bits from bit 4h + 2(j % 2) of each byte, put at bit 4.
  template <int h>
  static OCTAVO_INLINE Ints upper_bits(const Step& step, int j) {
    Ints bits = L::load_panels(step.weights + kNibbleBytes + 32 * (j / 2), step.stride);
    if constexpr (h == 0) bits = L::template shift_left<4>(bits);
    return L::bit_and(L::shift_right_by(bits, L::set1_int(2 * (j % 2))), L::set1_int(0x30303030));
  }
};

// F32 and F16: a column of eight rows is one load.
template <class L, WeightType type>
struct UnpackColumns {
  using Floats = typename L::Floats;
  static constexpr int64_t kColumnBytes = panel_layout(type).panel_group;
  static constexpr int kHalves = 1, kQuads = 1;
  static constexpr int64_t kStep = 4;
  static constexpr int64_t kStepBytes = kStep * kColumnBytes;

  struct Step {
    const uint8_t* weights;
    int64_t stride;
  };
  struct Quad {};

  static OCTAVO_INLINE Step begin(const uint8_t* panel, int64_t stride, int64_t column) {
    return {panel + kColumnBytes * column, stride};
  }
  template <int h>
  static OCTAVO_INLINE Quad quad(const Step&, int) {
    return {};
  }
  template <int h, int i>
  static OCTAVO_INLINE Floats value(const Step& step, Quad) {
    return column(step.weights, step.stride, i);
  }
  static OCTAVO_INLINE Floats column(const uint8_t* panel, int64_t stride, int64_t column) {
    const uint8_t* at = panel + kColumnBytes * column;
    if constexpr (type == WeightType::F32) return L::load_panels_f32(at, stride);
    else return L::load_panels_f16(at, stride);
  }
};

template <class L>
struct Unpack<L, WeightType::F32> : UnpackColumns<L, WeightType::F32> {};

template <class L>
struct Unpack<L, WeightType::F16> : UnpackColumns<L, WeightType::F16> {};

// A 32-bit lane holds two columns: the even one is shifted up, the odd one is masked out.
template <class L>
struct Unpack<L, WeightType::BF16> {
  using Floats = typename L::Floats;
  using Ints = typename L::Ints;
  static constexpr int kHalves = 1, kQuads = 1;
  static constexpr int64_t kStep = 4;
  static constexpr int64_t kStepBytes = kStep * 16;

  struct Step {
    const uint8_t* weights;
    int64_t stride;
  };
  struct Quad {
    Ints pairs[2];
  };

  static OCTAVO_INLINE Step begin(const uint8_t* panel, int64_t stride, int64_t column) {
    return {panel + 16 * column, stride};
  }
  template <int h>
  static OCTAVO_INLINE Quad quad(const Step& step, int) {
    return {{L::load_panels(step.weights, step.stride), L::load_panels(step.weights + 32, step.stride)}};
  }
  template <int h, int i>
  static OCTAVO_INLINE Floats value(const Step&, const Quad& quad) {
    return half<i % 2>(quad.pairs[i / 2]);
  }
  static OCTAVO_INLINE Floats column(const uint8_t* panel, int64_t stride, int64_t column) {
    const Ints pair = L::load_panels(panel + column / 2 * 32, stride);
    return column % 2 ? half<1>(pair) : half<0>(pair);
  }

 private:
  template <int i>
  static OCTAVO_INLINE Floats half(Ints pair) {
    if constexpr (i == 0) return L::as_floats(L::template shift_left<16>(pair));
    else return L::as_floats(L::bit_and(pair, L::set1_int(static_cast<int32_t>(0xffff0000u))));
  }
};

// Weights that are floats already: the scratch panel of linear.hpp, [col][kWides][L::kLanes] floats. Wide p
// starts p * L::kLanes floats into it; `stride` plays no part.
template <class L, int kWides>
struct UnpackScratch {
  using Floats = typename L::Floats;
  static constexpr int64_t kColumnBytes = kWides * L::kLanes * 4;
  static constexpr int kHalves = 1, kQuads = 1;
  static constexpr int64_t kStep = 4;
  static constexpr int64_t kStepBytes = kStep * kColumnBytes;

  struct Step {
    const uint8_t* weights;
  };
  struct Quad {};

  static OCTAVO_INLINE Step begin(const uint8_t* panel, int64_t, int64_t column) {
    return {panel + kColumnBytes * column};
  }
  template <int h>
  static OCTAVO_INLINE Quad quad(const Step&, int) {
    return {};
  }
  template <int h, int i>
  static OCTAVO_INLINE Floats value(const Step& step, Quad) {
    return column(step.weights, 0, i);
  }
  static OCTAVO_INLINE Floats column(const uint8_t* panel, int64_t, int64_t column) {
    return L::load(reinterpret_cast<const float*>(panel + kColumnBytes * column));
  }
};

}  // namespace
}  // namespace octavo
