// CRC32C by carry-less multiplication of 64 bytes at a time (AVX-512 with VPCLMULQDQ): as fast as memory.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ringlog {

// Fewer bytes are not worth the steps at the end.
constexpr size_t kFoldBytesMin = 1024;

// Whether this machine can.
bool crc32c_can_fold() noexcept;

// Continues a CRC that is not inverted over the whole 64-byte blocks of at least kFoldBytesMin bytes, and moves `data`
// and `size` behind them.
uint32_t crc32c_fold(uint32_t crc, const uint8_t*& data, size_t& size) noexcept;

}  // namespace ringlog
