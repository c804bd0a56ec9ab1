// Logits processors are Python's; the sampler calls them through here.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>

#include "python_bytes.hpp"
#include "sampler.hpp"

namespace octavo {

// Calls `process(row, stage)` after the logits were copied into `scratch`, and copies them back. Python's
// memory is in between, so that a view which a processor keeps can do no harm. None is success; a text
// says what went wrong.
inline std::function<void(int32_t, Stage, float*)> run_in_python(const nanobind::object& process,
                                                                 const Bytes& scratch, int64_t vocab_size) {
  return [&process, shared = scratch.floats(vocab_size), vocab_size](int32_t row, Stage stage,
                                                                     float* logits) {
    const size_t num_bytes = static_cast<size_t>(vocab_size) * sizeof(float);
    std::memcpy(shared, logits, num_bytes);
    std::string failure;
    {
      const nanobind::gil_scoped_acquire acquire;
      try {
        const nanobind::object answer = process(row, static_cast<int32_t>(stage));
        if (!answer.is_none()) failure = nanobind::cast<std::string>(answer);
      } catch (nanobind::python_error& error) {
        failure = error.what();
      }
    }
    if (!failure.empty()) throw std::runtime_error(failure);
    std::memcpy(logits, shared, num_bytes);
  };
}

}  // namespace octavo
