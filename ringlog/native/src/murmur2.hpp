// murmur2 as Kafka's producers hash keys, so that a key lands in the same partition here and there.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ringlog {

inline uint32_t murmur2(const uint8_t* data, size_t size) noexcept {
    constexpr uint32_t kSeed = 0x9747b28c;
    constexpr uint32_t kMix = 0x5bd1e995;
    constexpr int kShift = 24;

    uint32_t hash = kSeed ^ static_cast<uint32_t>(size);
    const uint8_t* const words_end = data + (size & ~size_t{3});
    for (; data != words_end; data += 4) {
        uint32_t word = static_cast<uint32_t>(data[0]) | static_cast<uint32_t>(data[1]) << 8 |
                        static_cast<uint32_t>(data[2]) << 16 | static_cast<uint32_t>(data[3]) << 24;
        word *= kMix;
        word ^= word >> kShift;
        word *= kMix;
        hash = hash * kMix ^ word;
    }
    switch (size & 3) {
        case 3: hash ^= static_cast<uint32_t>(data[2]) << 16; [[fallthrough]];
        case 2: hash ^= static_cast<uint32_t>(data[1]) << 8; [[fallthrough]];
        case 1: hash = (hash ^ data[0]) * kMix; break;
        default: break;
    }
    hash ^= hash >> 13;
    hash *= kMix;
    return hash ^ (hash >> 15);
}

// The partition of a key: the sign bit is dropped, not folded in. `partitions` is positive.
inline int32_t partition_of(const uint8_t* key, size_t size, int32_t partitions) noexcept {
    return static_cast<int32_t>(murmur2(key, size) & 0x7fffffff) % partitions;
}

}  // namespace ringlog
