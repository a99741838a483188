// CRC32C (Castagnoli): the checksum of record batches. The fastest path of the machine is picked once.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ringlog {

// Continues `seed` (the CRC of what came before, 0 at the start) over `size` bytes.
uint32_t crc32c(const uint8_t* data, size_t size, uint32_t seed = 0) noexcept;

// The same by tables alone: what a machine without CRC instructions runs, and what tests compare with.
uint32_t crc32c_portable(const uint8_t* data, size_t size, uint32_t seed = 0) noexcept;

// The same without folding: what most machines run, and what tests compare with.
uint32_t crc32c_unfolded(const uint8_t* data, size_t size, uint32_t seed = 0) noexcept;

// The path that crc32c() takes on this machine: "avx512" (and the next for short ranges), "sse4.2", "armv8" or
// "portable".
const char* crc32c_path() noexcept;

// The CRC of a range B from the CRC of a prefix A, the CRC of A followed by B, and the size of B; in
// O(log size), so that many overlapping ranges cost one pass over the bytes.
uint32_t crc32c_of_suffix(uint32_t prefix_crc, uint32_t whole_crc, size_t suffix_size) noexcept;

}  // namespace ringlog
