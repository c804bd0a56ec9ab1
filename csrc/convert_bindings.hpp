// The functions of octavo._native that make rows of quantised weights.
#pragma once

#include <nanobind/nanobind.h>

namespace octavo {

void bind_conversions(nanobind::module_& module);

}  // namespace octavo
