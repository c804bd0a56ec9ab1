// From packed panels to bytes in registers, for products with int8 activations: one policy per weight type.
//
// Owns: which bytes and which numbers of a group a weight is made of. A weight is
// scale * (byte - kZeroPoint) + offset; how the byte is put together is unpack.hpp.
//
//   kMost, kIsSigned            what D::Sum of simd/dot.hpp needs to know
//   kParts                      scales of a group: one, or one for each 16 columns (Q6_K), with its offset
//   kZeroPointBits              kZeroPoint is 2 to this power; 0: there is none
//   kHasOffset
//   Step begin(panel, stride, column)
//   Ints bytes<h>(step, j)      columns 16h + 4j .. 16h + 4j + 3 of the group
//   Floats scale<part>(step)    Floats offset<part>(step)
#pragma once

#include <cstdint>

#include "unpack.hpp"

namespace octavo {
namespace {

struct ByteFormat {
  int most;
  bool is_signed;
  int parts;
  int zero_point_bits;
  bool has_offset;
};

static constexpr ByteFormat whole_bytes(bool takes_signed, int parts, bool has_offset) {
  return takes_signed ? ByteFormat{128, true, parts, 0, has_offset} : ByteFormat{255, false, parts, 7, has_offset};
}

// `takes_signed`: weights of a whole byte may be signed.
static constexpr ByteFormat byte_format(WeightType type, bool takes_signed) {
  switch (type) {
    case WeightType::Q4_0: return {15, false, 1, 3, false};
    case WeightType::Q4_1: return {15, false, 1, 0, true};
    case WeightType::Q4_K: return {15, false, 1, 0, true};
    case WeightType::Q5_0: return {31, false, 1, 4, false};
    case WeightType::Q5_1: return {31, false, 1, 0, true};
    case WeightType::Q5_K: return {31, false, 1, 0, true};
    case WeightType::Q6_K: return {63, false, 2, 5, false};
    case WeightType::Q2_K: return {3, false, 2, 0, true};
    case WeightType::Q3_K: return {7, false, 2, 2, false};
    case WeightType::INT4_32:
    case WeightType::INT4_128: return {15, false, 1, 0, true};
    case WeightType::INT8_32:
    case WeightType::INT8_128: return whole_bytes(takes_signed, 1, true);
    case WeightType::INT8_K:
    case WeightType::FP4_16: return whole_bytes(takes_signed, 2, false);
    default: return whole_bytes(takes_signed, 1, false);
  }
}

template <int most, bool is_signed, int parts, int zero_point_bits, bool has_offset>
struct ByteTraits {
  static constexpr int kMost = most, kParts = parts, kZeroPointBits = zero_point_bits;
  static constexpr bool kIsSigned = is_signed, kHasOffset = has_offset;
};

template <WeightType type, bool takes_signed>
using TraitsOf = ByteTraits<byte_format(type, takes_signed).most, byte_format(type, takes_signed).is_signed,
                            byte_format(type, takes_signed).parts,
                            byte_format(type, takes_signed).zero_point_bits,
                            byte_format(type, takes_signed).has_offset>;

template <class D, WeightType type>
struct UnpackBytes : TraitsOf<type, D::kIsSigned> {
  using Traits = TraitsOf<type, D::kIsSigned>;
  using L = typename D::Lanes;
  using Floats = typename L::Floats;
  using Ints = typename L::Ints;
  using Base = Unpack<L, type>;
  using Step = typename Base::Step;
  static constexpr int kHalves = 2, kQuads = 4;
  static constexpr int64_t kStepBytes = Base::kStepBytes;

  static OCTAVO_INLINE Step begin(const uint8_t* panel, int64_t stride, int64_t column) {
    return Base::begin(panel, stride, column);
  }
  template <int h>
  static OCTAVO_INLINE Ints bytes(const Step& step, int j) {
    const Ints raw = Base::template quad<h>(step, j);
    if constexpr (Traits::kZeroPointBits == 7) {
      return L::bit_xor(raw, L::set1_int(static_cast<int32_t>(0x80808080u)));  // adds 128
    }
    return raw;
  }
  template <int part>
  static OCTAVO_INLINE Floats scale(const Step& step) {
    return Base::template byte_scale<part>(step);
  }
  template <int part>
  static OCTAVO_INLINE Floats offset(const Step& step) {
    return step.offset[part];
  }
};

// What UnpackBytes gives, written down: a scratch panel of rows of kWides vectors. For each group the scales,
// the offsets if there are some, and eight rows of bytes. Wide p starts p vectors into it.
template <class D, class Traits, int kWides>
struct ScratchBytes : Traits {
  using L = typename D::Lanes;
  using Floats = typename L::Floats;
  using Ints = typename L::Ints;
  static constexpr int kNumbers = Traits::kParts * (1 + Traits::kHasOffset);
  static constexpr int64_t kRowBytes = kWides * L::kLanes * 4;
  static constexpr int64_t kStepBytes = (kNumbers + 8) * kRowBytes;

  struct Step {
    const uint8_t* at;
  };

  static OCTAVO_INLINE Step begin(const uint8_t* panel, int64_t, int64_t column) {
    return {panel + column / kGroup * kStepBytes};
  }
  template <int h>
  static OCTAVO_INLINE Ints bytes(const Step& step, int j) {
    return L::load_ints(reinterpret_cast<const int32_t*>(step.at + (kNumbers + 4 * h + j) * kRowBytes));
  }
  template <int part>
  static OCTAVO_INLINE Floats scale(const Step& step) {
    return number(step, part);
  }
  template <int part>
  static OCTAVO_INLINE Floats offset(const Step& step) {
    return number(step, Traits::kParts + part);
  }

 private:
  static OCTAVO_INLINE Floats number(const Step& step, int index) {
    return L::load(reinterpret_cast<const float*>(step.at + index * kRowBytes));
  }
};

}  // namespace
}  // namespace octavo
