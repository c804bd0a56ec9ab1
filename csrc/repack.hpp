// From GGUF types that have no kernels of their own to one of ours that says the same numbers: INT8_K, or FP4_16
// for NVFP4 (packing.hpp).
#pragma once

#include <cstdint>
#include <vector>

namespace octavo {

// Our blocks for `bytes` bytes of blocks of that type, their scales times `factor`. Nothing else is rounded.
// Throws std::invalid_argument for another type or no whole blocks.
std::vector<uint8_t> repack_blocks(int32_t ggml_type, const uint8_t* data, int64_t bytes, float factor = 1.0f);

}  // namespace octavo
