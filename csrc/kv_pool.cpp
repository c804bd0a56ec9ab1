#include "kv_pool.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

namespace octavo {
namespace {

constexpr int64_t kLaneAlignment = 64;
constexpr int64_t kPage = 4096;  // the smallest of the systems'; larger pages are touched more than once

int64_t lane_bytes(KvType type, int64_t block_size, const KvShape& shape) {
  if (shape.head_dim > kMostHeadDim) {
    throw std::invalid_argument("heads of more than " + std::to_string(kMostHeadDim) +
                                " numbers cannot be kept");
  }
  if (type == KvType::Int4 && shape.head_dim % 2 != 0) {
    throw std::invalid_argument("int4 keys and values need an even head size, got " +
                                std::to_string(shape.head_dim));
  }
  return shape.num_kv_heads * kv_head_bytes(type, block_size, shape.head_dim);
}

KvGroups groups_or_one(const KvGroups& groups, size_t num_layers) {
  if (!groups.empty()) return groups;
  std::vector<int64_t> all(num_layers);
  std::iota(all.begin(), all.end(), 0);
  return {std::move(all)};
}

// The shape of each lane, after a look at which layer lies where.
std::vector<KvShape> lane_shapes(const std::vector<KvShape>& layers, const KvGroups& groups) {
  std::vector<KvShape> lanes;
  std::vector<bool> is_placed(layers.size());
  for (const std::vector<int64_t>& group : groups) {
    for (size_t lane = 0; lane < group.size(); ++lane) {
      const size_t layer = static_cast<size_t>(group[lane]);
      if (layer >= layers.size() || is_placed[layer]) {
        throw std::invalid_argument("layer " + std::to_string(group[lane]) +
                                    " is in two KV groups, or there is no such layer");
      }
      is_placed[layer] = true;
      if (lane == lanes.size()) lanes.push_back(layers[layer]);
      if (lanes[lane].num_kv_heads != layers[layer].num_kv_heads ||
          lanes[lane].head_dim != layers[layer].head_dim) {
        throw std::invalid_argument("layers of different shapes cannot share a lane of a KV block");
      }
    }
  }
  if (!std::all_of(is_placed.begin(), is_placed.end(), [](bool placed) { return placed; })) {
    throw std::invalid_argument("each layer needs a KV group");
  }
  return lanes;
}

}  // namespace

KvPool::KvPool(KvType type, int64_t num_blocks, int64_t block_size, std::vector<KvShape> layers,
               const KvGroups& groups)
    : type_(type),
      num_blocks_(num_blocks),
      block_size_(block_size),
      shapes_(std::move(layers)),
      places_(shapes_.size()) {
  if (block_size < 8 || block_size % 8 != 0 || num_blocks < 1) {
    throw std::invalid_argument("a KV pool needs blocks of a multiple of 8 tokens, got " +
                                std::to_string(num_blocks) + " blocks of " +
                                std::to_string(block_size));
  }
  const KvGroups all = groups_or_one(groups, shapes_.size());
  num_groups_ = static_cast<int64_t>(all.size());
  int64_t offset = 0;
  for (const KvShape& shape : lane_shapes(shapes_, all)) {
    const int64_t bytes = lane_bytes(type, block_size, shape);
    lanes_.push_back({offset, block_bytes_, bytes});
    block_bytes_ += bytes;
    offset += num_blocks * bytes;
    offset = (offset + kLaneAlignment - 1) / kLaneAlignment * kLaneAlignment;
  }
  for (size_t group = 0; group < all.size(); ++group) {
    for (size_t lane = 0; lane < all[group].size(); ++lane) {
      places_[static_cast<size_t>(all[group][lane])] = {static_cast<int64_t>(group),
                                                        static_cast<int64_t>(lane)};
    }
  }
  // With huge pages a step that touched new blocks took 0.17 s longer; attention was no faster.
  memory_ = Memory(offset, false);
}

KvLayer KvPool::layer(int64_t index) const {
  const KvShape& shape = shapes_.at(static_cast<size_t>(index));
  const Lane& lane = lanes_[static_cast<size_t>(places_[static_cast<size_t>(index)].lane)];
  return {memory_.data() + lane.memory_offset,
          type_,
          num_blocks_,
          block_size_,
          shape.num_kv_heads,
          shape.head_dim};
}

template <class Visit>
void KvPool::each_piece(int32_t block, const Share& part, Visit visit) const {
  for (const Lane& lane : lanes_) {
    const int64_t begin = std::max(part.begin, lane.begin);
    const int64_t end = std::min(part.end, lane.begin + lane.bytes);
    if (begin >= end) continue;
    uint8_t* first = memory_.data() + lane.memory_offset + block * lane.bytes;
    visit(first + (begin - lane.begin), begin, static_cast<size_t>(end - begin), lane);
  }
}

void KvPool::read_block(int32_t block, const Share& part, uint8_t* slot) const {
  each_piece(block, part, [&](const uint8_t* piece, int64_t offset, size_t count, const Lane&) {
    std::memcpy(slot + offset, piece, count);
  });
}

void KvPool::write_block(int32_t block, const Share& part, const uint8_t* slot) const {
  each_piece(block, part, [&](uint8_t* piece, int64_t offset, size_t count, const Lane&) {
    std::memcpy(piece, slot + offset, count);
  });
}

void KvPool::copy_block(int32_t from, int32_t to, const Share& part) const {
  if (from == to) return;
  each_piece(from, part, [&](uint8_t* piece, int64_t, size_t count, const Lane& lane) {
    std::memcpy(piece + (int64_t{to} - from) * lane.bytes, piece, count);
  });
}

void KvPool::touch(int64_t block, int64_t lane) const {
  const Lane& place = lanes_[static_cast<size_t>(lane)];
  volatile uint8_t* bytes = memory_.data() + place.memory_offset + block * place.bytes;
  for (int64_t offset = 0; offset < place.bytes; offset += kPage) bytes[offset] = bytes[offset];
}

int64_t KvPool::bytes_per_block(KvType type, int64_t block_size,
                                const std::vector<KvShape>& layers, const KvGroups& groups) {
  int64_t bytes = 0;
  for (const KvShape& shape : lane_shapes(layers, groups_or_one(groups, layers.size()))) {
    bytes += lane_bytes(type, block_size, shape);
  }
  return bytes;
}

}  // namespace octavo
