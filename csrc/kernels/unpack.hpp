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

// The numbers that a code of four bits stands for. FP4 (E2M1 of OCP) counts in halves.
static constexpr int8_t kIq4Codebook[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static constexpr int8_t kFp4Codebook[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
// NF4: quantiles of the normal distribution (Dettmers et al., "QLoRA", 2023), as in bitsandbytes.
static constexpr float kNf4Codebook[16] = {
    -1.0f,                 -0.6961928009986877f, -0.5250730514526367f,  -0.39491748809814453f,
    -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
    0.07958029955625534f,  0.16093020141124725f,  0.24611230194568634f,  0.33791524171829224f,
    0.44070982933044434f,  0.5626170039176941f,   0.7229568362236023f,   1.0f};

// Quantised types. Each weight is one fused multiply-add, scale * q + offset with q >= 0. The product of an
// fp16 number, a sub-scale and q has at most 24 bits, so it is exact, and where the zero point is a
// constant (Q4_0: 8) so is the sum: the weight is the value of the format's definition, rounded to float32
// at most once. With a float32 scale (our own types) products with bf16 or f16 numbers behind it are exact too.
template <class L, WeightType type>
struct Unpack {
  using Floats = typename L::Floats;
  using Ints = typename L::Ints;
  using Quad = Ints;  // four bytes per row

  static constexpr PanelLayout kLayout = panel_layout(type);
  static constexpr int kHalves = 2, kQuads = 4;
  static constexpr int64_t kStep = kGroup;
  static constexpr int64_t kStepBytes = kLayout.panel_group;

  // [0] is for the lower, [1] for the upper 16 columns of the group; only some types tell them apart.
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
    if constexpr (type == WeightType::Q8_0 || type == WeightType::IQ4_NL) return signed_bytes(group, stride);
    if constexpr (type == WeightType::Q2_K) return with_two_minima(block, group, stride);
    if constexpr (type == WeightType::Q3_K) return with_two_scales(block, group, stride, -4.0f);
    if constexpr (type == WeightType::Q6_K) return with_two_scales(block, group, stride, -32.0f);
    if constexpr (type == WeightType::Q4_K || type == WeightType::Q5_K) {
      return with_sub_scales(block, group, stride);
    }
    if constexpr (type == WeightType::IQ4_XS) return with_signed_scale(block, group, stride);
    if constexpr (type == WeightType::MXFP4) return with_exponent(group, stride);
    if constexpr (type == WeightType::INT8_K) return with_two_signed_scales(block, group, stride);
    if constexpr (type == WeightType::FP4_16) return with_two_floats(block, group, stride);
    if constexpr (type == WeightType::NF4_32) return {group, stride, {L::load_panels_f32(block, stride)}, {}};
    if constexpr (type == WeightType::INT4_32 || type == WeightType::INT4_128 || kIsInt8) {
      return with_zero(block, group, stride);
    }
    return with_minimum(group, stride);
  }

  template <int h>
  static OCTAVO_INLINE Quad quad(const Step& step, int j) {
    if constexpr (kHasBytes) return L::load_panels(step.weights + 32 * (4 * h + j), step.stride);
    if constexpr (type == WeightType::Q2_K) return bit_pairs<h>(step, j);
    if constexpr (type == WeightType::Q3_K) return L::bit_or(bit_pairs<h>(step, j), third_bits<h>(step, j));
    const Ints nibble = nibbles<h>(step, j);
    if constexpr (kIsIq4) return L::look_up_bytes(kIq4Codebook, nibble);
    if constexpr (kIsFp4) return L::look_up_bytes(kFp4Codebook, nibble);
    if constexpr (kHasFifthBits) return L::bit_or(nibble, fifth_bits<h>(step, j));
    if constexpr (type == WeightType::Q6_K) return L::bit_or(nibble, upper_bits<h>(step, j));
    return nibble;
  }

  template <int h, int i>
  static OCTAVO_INLINE Floats value(const Step& step, Quad bytes) {
    if constexpr (kIsInt8) {
      return L::fma(step.scale[0], L::to_floats(L::template byte_at_top<i>(bytes)), step.offset[0]);
    } else if constexpr (kIsSigned) {
      return L::mul(step.scale[kHasTwoSigned ? h : 0], L::to_floats(L::template byte_at_top<i>(bytes)));
    } else if constexpr (type == WeightType::NF4_32) {
      return L::mul(step.scale[0], L::look_up_floats(kNf4Codebook, L::template byte<i>(bytes)));
    } else {
      const Floats q = L::to_floats(L::template byte<i>(bytes));
      return L::fma(step.scale[h], q, step.offset[h]);
    }
  }

  // The scale of a byte itself, where scale[] is that of a byte at the top of a lane.
  template <int part>
  static OCTAVO_INLINE Floats byte_scale(const Step& step) {
    if constexpr (type == WeightType::Q8_0) return L::load_panels_f16(step.weights - 16, step.stride);
    else if constexpr (kHasTwoSigned) return step.offset[part];
    else if constexpr (kIsSigned) return step.scale[1];
    else return step.scale[part];
  }

 private:
  static constexpr bool kHasFifthBits =
      type == WeightType::Q5_0 || type == WeightType::Q5_1 || type == WeightType::Q5_K;
  static constexpr bool kIsInt8 = type == WeightType::INT8_32 || type == WeightType::INT8_128;
  static constexpr bool kHasBytes = kIsInt8 || type == WeightType::Q8_0 || type == WeightType::INT8_K;
  static constexpr bool kIsIq4 = type == WeightType::IQ4_NL || type == WeightType::IQ4_XS;
  static constexpr bool kIsFp4 = type == WeightType::MXFP4 || type == WeightType::FP4_16;
  static constexpr bool kIsSigned = kHasBytes || kIsIq4 || kIsFp4;  // quad() gives signed bytes
  static constexpr bool kHasTwoSigned = type == WeightType::INT8_K || type == WeightType::FP4_16;
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
  static OCTAVO_INLINE Step signed_step(const uint8_t* weights, int64_t stride, Floats d) {
    const Floats scale = L::mul(d, L::set1(0x1p-24f));
    // Where both halves have this scale, [1] keeps that of the byte itself: see byte_scale().
    if constexpr (type == WeightType::Q8_0) return {weights, stride, {scale, scale}, {scale, scale}};
    else return {weights, stride, {scale, d}, {d, d}};
  }
  static OCTAVO_INLINE Step signed_bytes(const uint8_t* group, int64_t stride) {
    return signed_step(group + 16, stride, L::load_panels_f16(group, stride));
  }
  // (d * scale) * q
  static OCTAVO_INLINE Step with_signed_scale(const uint8_t* block, const uint8_t* group, int64_t stride) {
    const Floats scale = L::to_floats(L::load_panels_i8(group, stride));
    return signed_step(group + 8, stride, L::mul(L::load_panels_f16(block, stride), scale));
  }
  // 2^(exponent - 128) * q: a number of FP4 is half of q. Exponent 0 gives zero, as denormals do.
  static OCTAVO_INLINE Step with_exponent(const uint8_t* group, int64_t stride) {
    const Ints exponent = L::load_panels_u8(group, stride);
    const Floats power = L::as_floats(L::template shift_left<23>(exponent));
    return signed_step(group + 8, stride, L::mul(power, L::set1(0.5f)));
  }
  // As signed_step, one scale for each half of the group.
  static OCTAVO_INLINE Step two_signed_steps(const uint8_t* weights, int64_t stride, Floats lower, Floats upper) {
    const Floats at_top = L::set1(0x1p-24f);
    return {weights, stride, {L::mul(lower, at_top), L::mul(upper, at_top)}, {lower, upper}};
  }
  static OCTAVO_INLINE Step with_two_floats(const uint8_t* block, const uint8_t* group, int64_t stride) {
    const Floats half = L::set1(0.5f);
    return two_signed_steps(group, stride, L::mul(L::load_panels_f32(block, stride), half),
                            L::mul(L::load_panels_f32(block + 32, stride), half));
  }
  static OCTAVO_INLINE Step with_two_signed_scales(const uint8_t* block, const uint8_t* group,
                                                   int64_t stride) {
    const Floats d = L::load_panels_f32(block, stride);
    return two_signed_steps(group + 16, stride, L::mul(d, L::to_floats(L::load_panels_i8(group, stride))),
                            L::mul(d, L::to_floats(L::load_panels_i8(group + 8, stride))));
  }
  // d * q - d * zero
  static OCTAVO_INLINE Step with_zero(const uint8_t* block, const uint8_t* group, int64_t stride) {
    const Floats d = L::load_panels_f32(block, stride);
    const Floats negative = L::mul(d, L::set1(-1.0f));
    if constexpr (kIsInt8) {
      const Floats offset = L::mul(negative, L::to_floats(L::load_panels_i8(block + 32, stride)));
      return {group, stride, {L::mul(d, L::set1(0x1p-24f)), d}, {offset, offset}};
    } else {
      const Floats offset = L::mul(negative, L::to_floats(L::load_panels_u8(block + 32, stride)));
      return {group, stride, {d, d}, {offset, offset}};
    }
  }
  // (d * scale) * q - dmin * min, both for each half of the group
  static OCTAVO_INLINE Step with_two_minima(const uint8_t* block, const uint8_t* group, int64_t stride) {
    const Floats d = L::load_panels_f16(block, stride);
    const Floats negative_dmin = L::mul(L::load_panels_f16(block + 16, stride), L::set1(-1.0f));
    const auto times = [&](Floats factor, int64_t offset) {
      return L::mul(factor, L::to_floats(L::load_panels_u8(group + offset, stride)));
    };
    return {group + 32, stride, {times(d, 0), times(d, 8)}, {times(negative_dmin, 16), times(negative_dmin, 24)}};
  }
  // (d * scale) * q - dmin * min
  static OCTAVO_INLINE Step with_sub_scales(const uint8_t* block, const uint8_t* group, int64_t stride) {
    const Floats d = L::load_panels_f16(block, stride);
    const Floats negative_dmin = L::mul(L::load_panels_f16(block + 16, stride), L::set1(-1.0f));
    const Floats scale = L::mul(d, L::to_floats(L::load_panels_u8(group, stride)));
    const Floats offset = L::mul(negative_dmin, L::to_floats(L::load_panels_u8(group + 8, stride)));
    return {group + 16, stride, {scale, scale}, {offset, offset}};
  }
  // (d * scale) * (q + minus_zero), one scale for each half of the group
  static OCTAVO_INLINE Step with_two_scales(const uint8_t* block, const uint8_t* group, int64_t stride,
                                            float minus_zero) {
    const Floats d = L::load_panels_f16(block, stride);
    const Floats lower = L::mul(d, L::to_floats(L::load_panels_i8(group, stride)));
    const Floats upper = L::mul(d, L::to_floats(L::load_panels_i8(group + 8, stride)));
    const Floats zero_point = L::set1(minus_zero);
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
  // Bit 4h + j of each byte, put at bit 2.
  template <int h>
  static OCTAVO_INLINE Ints third_bits(const Step& step, int j) {
    Ints bits = L::load_panels(step.weights + 64, step.stride);
    bits = h == 0 ? L::template shift_left<2>(bits) : L::template shift_right<2>(bits);
    return L::bit_and(L::shift_right_by(bits, L::set1_int(j)), L::set1_int(0x04040404));
  }
  // Two bits from bit 4h + 2(j % 2) of each byte, put at bit 0.
  template <int h>
  static OCTAVO_INLINE Ints bit_pairs(const Step& step, int j) {
    const Ints bits = L::load_panels(step.weights + 32 * (j / 2), step.stride);
    return L::bit_and(L::shift_right_by(bits, L::set1_int(4 * h + 2 * (j % 2))), L::set1_int(0x03030303));
  }
  // Two bits from bit 4h + 2(j % 2) of each byte, put at bit 4.
  template <int h>
  static OCTAVO_INLINE Ints upper_bits(const Step& step, int j) {
    Ints bits = L::load_panels(step.weights + kNibbleBytes + 32 * (j / 2), step.stride);
    if constexpr (h == 0) bits = L::template shift_left<4>(bits);
    return L::bit_and(L::shift_right_by(bits, L::set1_int(2 * (j % 2))), L::set1_int(0x30303030));
  }
};

// 8-bit floats: a column of eight rows is one load. The number that a load gives is divided by 256.
template <class L, WeightType type>
struct UnpackFp8 {
  using Floats = typename L::Floats;
  using Quad = const uint8_t*;
  static constexpr PanelLayout kLayout = panel_layout(type);
  static constexpr int kHalves = 2, kQuads = 4;
  static constexpr int64_t kStep = kGroup;
  static constexpr int64_t kStepBytes = kLayout.panel_group;

  struct Step {
    const uint8_t* weights;
    int64_t stride;
    Floats scale;
  };

  static OCTAVO_INLINE Step begin(const uint8_t* panel, int64_t stride, int64_t column) {
    constexpr int64_t block_bytes = kLayout.panel_header + kLayout.block / kGroup * kLayout.panel_group;
    const uint64_t index = static_cast<uint64_t>(column), block_columns = kLayout.block;
    const uint8_t* block = panel + static_cast<int64_t>(index / block_columns) * block_bytes;
    const int64_t group = static_cast<int64_t>(index % block_columns / kGroup);
    const Floats scale = L::mul(L::load_panels_f32(block, stride), L::set1(256.0f));
    return {block + kLayout.panel_header + group * kLayout.panel_group, stride, scale};
  }
  template <int h>
  static OCTAVO_INLINE Quad quad(const Step& step, int j) {
    return step.weights + 8 * (16 * h + 4 * j);
  }
  template <int h, int i>
  static OCTAVO_INLINE Floats value(const Step& step, Quad columns) {
    return L::mul(step.scale, L::load_panels_e4m3(columns + 8 * i, step.stride));
  }
};

template <class L>
struct Unpack<L, WeightType::FP8_32> : UnpackFp8<L, WeightType::FP8_32> {};

template <class L>
struct Unpack<L, WeightType::FP8_128> : UnpackFp8<L, WeightType::FP8_128> {};

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
