// The memory of the KV cache: one allocation, cut into layers, each cut into blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/table.hpp"
#include "memory.hpp"

namespace octavo {

// Shape of one layer's keys and values.
struct KvShape {
  int64_t num_kv_heads, head_dim;
};

class KvPool {
 public:
  // Memory is taken from the system only as blocks are written.
  // Throws std::invalid_argument when block_size is not a multiple of 8.
  KvPool(KvType type, int64_t num_blocks, int64_t block_size, std::vector<KvShape> layers);

  KvLayer layer(int64_t index) const;
  const std::vector<KvShape>& shapes() const { return shapes_; }
  int64_t num_blocks() const { return num_blocks_; }
  int64_t block_size() const { return block_size_; }

  // Copy one layer's keys and values of block `from` to block `to`.
  void copy_block(int64_t layer, int32_t from, int32_t to) const;

  // Bytes of one block over all layers.
  static int64_t bytes_per_block(KvType type, int64_t block_size,
                                 const std::vector<KvShape>& layers);

 private:
  KvType type_;
  int64_t num_blocks_, block_size_;
  std::vector<KvShape> shapes_;
  std::vector<int64_t> offsets_;  // of each layer, bytes
  Memory memory_;
};

}  // namespace octavo
