// From GGUF types that have no kernels of their own to INT8_K (packing.hpp), which says the same numbers in more
// bits.
#pragma once

#include <cstdint>
#include <vector>

namespace octavo {

// Bytes of a block of 256 elements of a GGUF type that repack_blocks takes; 0 for others.
int64_t repacked_block_bytes(int32_t ggml_type);

// Blocks of INT8_K for `bytes` bytes of blocks of that type. Nothing is rounded.
// Throws std::invalid_argument for another type or no whole blocks.
std::vector<uint8_t> repack_blocks(int32_t ggml_type, const uint8_t* data, int64_t bytes);

}  // namespace octavo
