// The memory of the KV cache: one allocation, cut into lanes, each cut into blocks.
//
// Layers that lie in the same blocks form a group; layer i of a group lies in lane i. So any block can
// serve any group, and a pool without groups has one that holds all layers.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/table.hpp"
#include "memory.hpp"
#include "share.hpp"

namespace octavo {

// Shape of one layer's keys and values.
struct KvShape {
  int64_t num_kv_heads, head_dim;
};

// The layers of each group, in order of lanes. None at all: one group of all layers.
using KvGroups = std::vector<std::vector<int64_t>>;

class KvPool {
 public:
  // Memory is taken from the system only as blocks are written. Throws std::invalid_argument when
  // block_size is not a multiple of 8, for Int4 and an odd head_dim, or unless each layer is in one group and layers that share a
  // lane have one shape.
  KvPool(KvType type, int64_t num_blocks, int64_t block_size, std::vector<KvShape> layers,
         const KvGroups& groups);

  KvLayer layer(int64_t index) const;
  int64_t group_of(int64_t layer) const { return places_.at(static_cast<size_t>(layer)).group; }
  const std::vector<KvShape>& shapes() const { return shapes_; }  // of each layer
  int64_t num_groups() const { return num_groups_; }
  int64_t num_blocks() const { return num_blocks_; }
  int64_t block_size() const { return block_size_; }
  int64_t block_bytes() const { return block_bytes_; }  // over all lanes

  // Move the bytes `part` of a block, which counts its lanes one after the other: [0, block_bytes()).
  // `slot` points to a whole block outside the pool.
  void read_block(int32_t block, const Share& part, uint8_t* slot) const;
  void write_block(int32_t block, const Share& part, const uint8_t* slot) const;
  void copy_block(int32_t from, int32_t to, const Share& part) const;

  int64_t num_lanes() const { return static_cast<int64_t>(lanes_.size()); }
  // Takes the memory of a block's part in a lane from the system, and changes nothing in it. Nobody may be
  // writing to that block.
  void touch(int64_t block, int64_t lane) const;

  // block_bytes() of such a pool.
  static int64_t bytes_per_block(KvType type, int64_t block_size,
                                 const std::vector<KvShape>& layers, const KvGroups& groups);

 private:
  struct Place {  // of a layer
    int64_t group, lane;
  };
  struct Lane {
    int64_t memory_offset;  // of its block 0
    int64_t begin, bytes;   // of its part of a block
  };

  // Calls visit(address, offset, count, lane) for the pieces of `part` of a block.
  template <class Visit>
  void each_piece(int32_t block, const Share& part, Visit visit) const;

  KvType type_;
  int64_t num_blocks_, block_size_, block_bytes_ = 0, num_groups_ = 0;
  std::vector<KvShape> shapes_;
  std::vector<Place> places_;  // parallel to shapes_
  std::vector<Lane> lanes_;
  Memory memory_;
};

}  // namespace octavo
