#include "kv_pool.hpp"

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace octavo {
namespace {

constexpr int64_t kLayerAlignment = 64;

int64_t element_bytes(KvType type) { return type == KvType::F32 ? 4 : 2; }

int64_t block_bytes(KvType type, int64_t block_size, const KvShape& shape) {
  return shape.num_kv_heads * 2 * block_size * shape.head_dim * element_bytes(type);
}

}  // namespace

KvPool::KvPool(KvType type, int64_t num_blocks, int64_t block_size, std::vector<KvShape> layers)
    : type_(type), num_blocks_(num_blocks), block_size_(block_size), shapes_(std::move(layers)) {
  if (block_size < 8 || block_size % 8 != 0 || num_blocks < 1) {
    throw std::invalid_argument("a KV pool needs blocks of a multiple of 8 tokens, got " +
                                std::to_string(num_blocks) + " blocks of " +
                                std::to_string(block_size));
  }
  int64_t bytes = 0;
  for (const KvShape& shape : shapes_) {
    offsets_.push_back(bytes);
    bytes += num_blocks * block_bytes(type, block_size, shape);
    bytes = (bytes + kLayerAlignment - 1) / kLayerAlignment * kLayerAlignment;
  }
  memory_ = Memory(bytes);
}

KvLayer KvPool::layer(int64_t index) const {
  const KvShape& shape = shapes_.at(static_cast<size_t>(index));
  return {memory_.data() + offsets_[static_cast<size_t>(index)],
          type_,
          num_blocks_,
          block_size_,
          shape.num_kv_heads,
          shape.head_dim};
}

void KvPool::copy_block(int64_t layer, int32_t from, int32_t to) const {
  const size_t index = static_cast<size_t>(layer);
  const int64_t bytes = block_bytes(type_, block_size_, shapes_[index]);
  uint8_t* blocks = memory_.data() + offsets_[index];
  std::memcpy(blocks + to * bytes, blocks + from * bytes, static_cast<size_t>(bytes));
}

int64_t KvPool::bytes_per_block(KvType type, int64_t block_size,
                                const std::vector<KvShape>& layers) {
  int64_t bytes = 0;
  for (const KvShape& shape : layers) bytes += block_bytes(type, block_size, shape);
  return bytes;
}

}  // namespace octavo
