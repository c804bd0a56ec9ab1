// The classes of octavo._native that know text.
#pragma once

#include <nanobind/nanobind.h>

namespace octavo {

void bind_text(nanobind::module_& module);

}  // namespace octavo
