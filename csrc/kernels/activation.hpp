// Activation functions, alone and as the gate of a gated MLP.
#pragma once

#include <cstdint>

#include "../simd/math.hpp"
#include "../simd/vec.hpp"
#include "element.hpp"
#include "table.hpp"

namespace octavo {

// x * sigmoid(x)
struct SiluFunction {
  template <class V>
  static OCTAVO_INLINE typename V::Floats apply(typename V::Floats x) {
    return V::mul(x, sigmoid<V>(x));
  }
};

// x / 2 * (1 + tanh(u)) with u = sqrt(2 / pi) * (x + 0.044715 x^3), which is x * sigmoid(2 u)
// (Hendrycks and Gimpel 2016). The sigmoid keeps its precision where 1 + tanh(u) cancels.
struct GeluTanhFunction {
  template <class V>
  static OCTAVO_INLINE typename V::Floats apply(typename V::Floats x) {
    const typename V::Floats square = V::mul(x, x);
    const typename V::Floats factor =
        V::fma(square, V::set1(2 * 0.7978845608f * 0.044715f), V::set1(2 * 0.7978845608f));
    return V::mul(x, sigmoid<V>(V::mul(x, factor)));
  }
};

// x / 2 * (1 + erf(x / sqrt(2))), through erfc of the magnitude so that nothing cancels.
struct GeluFunction {
  template <class V>
  static OCTAVO_INLINE typename V::Floats apply(typename V::Floats x) {
    using Floats = typename V::Floats;
    const Floats tail = erfc_positive<V>(V::mul(V::abs(x), V::set1(0.7071067812f)));
    const Floats weight = V::select(V::less(x, V::zero()), tail, V::sub(V::set1(2.0f), tail));
    return V::mul(V::mul(x, V::set1(0.5f)), weight);
  }
};

// max(x, 0); a NaN stays one
struct ReluFunction {
  template <class V>
  static OCTAVO_INLINE typename V::Floats apply(typename V::Floats x) {
    return V::max(V::zero(), x);
  }
};

// max(x, 0)^2 (So et al. 2021)
struct SquaredReluFunction {
  template <class V>
  static OCTAVO_INLINE typename V::Floats apply(typename V::Floats x) {
    const typename V::Floats positive = V::max(V::zero(), x);
    return V::mul(positive, positive);
  }
};

struct TanhFunction {
  template <class V>
  static OCTAVO_INLINE typename V::Floats apply(typename V::Floats x) {
    return tanh<V>(x);
  }
};

struct SigmoidFunction {
  template <class V>
  static OCTAVO_INLINE typename V::Floats apply(typename V::Floats x) {
    return sigmoid<V>(x);
  }
};

// x within 1 of 0; a NaN stays one
struct HardtanhFunction {
  template <class V>
  static OCTAVO_INLINE typename V::Floats apply(typename V::Floats x) {
    return V::max(V::set1(-1.0f), V::min(V::set1(1.0f), x));
  }
};

// With gate at most 7 and up within 7 of 0: gate * sigmoid(1.702 gate) * (up + 1) (OpenAI 2025).
struct ClampedSwigluFunction {
  template <class V>
  static OCTAVO_INLINE typename V::Floats apply(typename V::Floats gate, typename V::Floats up) {
    using Floats = typename V::Floats;
    const Floats limit = V::set1(7.0f);
    const Floats bounded = V::min(limit, gate);  // in this order a NaN stays one
    const Floats factor = V::max(V::set1(-7.0f), V::min(limit, up));
    const Floats gated = V::mul(bounded, sigmoid<V>(V::mul(bounded, V::set1(1.702f))));
    return V::mul(V::add(factor, V::set1(1.0f)), gated);
  }
};

// Calls visit(Function{}) with the function that `activation` names.
template <class V, class Visit>
OCTAVO_INLINE void with_activation(Activation activation, Visit visit) {
  switch (activation) {
    case Activation::Silu: return visit(SiluFunction{});
    case Activation::GeluTanh: return visit(GeluTanhFunction{});
    case Activation::Gelu: return visit(GeluFunction{});
    case Activation::Relu: return visit(ReluFunction{});
    case Activation::SquaredRelu: return visit(SquaredReluFunction{});
    case Activation::Tanh: return visit(TanhFunction{});
    case Activation::Sigmoid: return visit(SigmoidFunction{});
    case Activation::Hardtanh: return visit(HardtanhFunction{});
    case Activation::ClampedSwiglu: return;  // has two inputs, see gated()
  }
}

// out = act(a)
template <class V>
void activation(const ElementArgs& args) {
  using W = typename V::Wide;
  using Floats = typename W::Floats;
  with_activation<V>(args.activation, [&](auto function) {
    each_element<W>(args, [=](Floats a, Floats) { return function.template apply<W>(a); });
  });
}

// out = act(x[0 : size]) * x[size : 2 size]
template <class V>
void gated(const GatedArgs& args) {
  using W = typename V::Wide;
  using Floats = typename W::Floats;
  ElementArgs halves{};
  halves.a = args.x;
  halves.a_stride = args.x_stride;
  halves.b = args.x + args.size;
  halves.b_stride = args.x_stride;
  halves.out = args.out;
  halves.out_stride = args.out_stride;
  halves.size = args.size;
  halves.begin = args.begin;
  halves.end = args.end;
  if (args.activation == Activation::ClampedSwiglu) {
    return each_element<W>(halves, [](Floats gate, Floats up) {
      return ClampedSwigluFunction::apply<W>(gate, up);
    });
  }
  with_activation<V>(args.activation, [&](auto function) {
    each_element<W>(halves, [=](Floats gate, Floats up) {
      return W::mul(function.template apply<W>(gate), up);
    });
  });
}

}  // namespace octavo
