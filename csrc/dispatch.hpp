// Choosing the kernels for the processor that we run on.
#pragma once

#include <string>
#include <vector>

#include "kernels/table.hpp"

namespace octavo {

// Names of the instruction sets that were compiled in and that this processor and operating system
// support, best first. The last one is always "scalar".
std::vector<std::string> available_isas();

// The kernels of one instruction set; an empty name means the best available one.
// Throws std::invalid_argument with the choices when the name is not available here.
const KernelTable& find_kernels(const std::string& isa);

}  // namespace octavo
