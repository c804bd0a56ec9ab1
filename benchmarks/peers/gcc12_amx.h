// For builds of a peer with g++ 12 on processors with AMX: the compiler's own _tile_loadconfig tells
// the optimiser that 8 of the 64 bytes are read, the stores of the others are dropped, and the
// program dies of a general protection fault. Included before every C++ file of the peer.
#pragma once

#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
#include <immintrin.h>
#define _tile_loadconfig(config) \
  __asm__ volatile("ldtilecfg\t%X0" ::"m"(*reinterpret_cast<const char(*)[64]>(config)))
#endif
