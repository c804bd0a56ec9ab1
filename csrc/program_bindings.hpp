// The part of octavo._native that makes programs.
#pragma once

#include <nanobind/nanobind.h>

namespace octavo {

void bind_program(nanobind::module_& module);

}  // namespace octavo
