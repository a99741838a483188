// Copies short pieces without the call that a length unknown to the compiler would cost.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ringlog {

inline void copy_bytes(uint8_t* to, const uint8_t* from, size_t size) noexcept {
    if (size > 256) {
        std::memcpy(to, from, size);
    } else if (size >= 16) {
        for (size_t i = 0; i < size - 16; i += 16) std::memcpy(to + i, from + i, 16);
        std::memcpy(to + size - 16, from + size - 16, 16);
    } else if (size >= 8) {
        std::memcpy(to, from, 8);
        std::memcpy(to + size - 8, from + size - 8, 8);
    } else if (size >= 4) {
        std::memcpy(to, from, 4);
        std::memcpy(to + size - 4, from + size - 4, 4);
    } else {
        for (size_t i = 0; i < size; ++i) to[i] = from[i];
    }
}

// What copy_roomy() may read and write beyond the size that it was given.
constexpr int64_t kRoomBytes = 32;

// Copies whole steps of 32 bytes: fewer branches, and none that depend on the last bits of the size. Behind
// `size`, kRoomBytes must be readable and writable; what they hold afterwards means nothing.
inline void copy_roomy(uint8_t* to, const uint8_t* from, int64_t size) noexcept {
    for (int64_t i = 0; i < size; i += kRoomBytes) std::memcpy(to + i, from + i, kRoomBytes);
}

}  // namespace ringlog
