// SipHash-2-4 with 128 bits: a keyed hash, so that nobody can make two keys of records meet on purpose.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bytes.hpp"

namespace ringlog {

struct Hash128 {
    uint64_t low = 0;
    uint64_t high = 0;

    bool operator==(const Hash128&) const noexcept = default;
};

namespace detail {

inline uint64_t load_little(const uint8_t* at) noexcept {
    uint64_t value;
    std::memcpy(&value, at, sizeof value);
    if constexpr (std::endian::native == std::endian::big) value = __builtin_bswap64(value);
    return value;
}

struct SipState {
    uint64_t v0, v1, v2, v3;

    void round() noexcept {
        v0 += v1;
        v1 = std::rotl(v1, 13) ^ v0;
        v0 = std::rotl(v0, 32);
        v2 += v3;
        v3 = std::rotl(v3, 16) ^ v2;
        v0 += v3;
        v3 = std::rotl(v3, 21) ^ v0;
        v2 += v1;
        v1 = std::rotl(v1, 17) ^ v2;
        v2 = std::rotl(v2, 32);
    }

    void take(uint64_t word) noexcept {
        v3 ^= word;
        round();
        round();
        v0 ^= word;
    }

    uint64_t finish() noexcept {
        for (int i = 0; i < 4; ++i) round();
        return v0 ^ v1 ^ v2 ^ v3;
    }
};

}  // namespace detail

inline Hash128 siphash128(Bytes data, const Hash128& seed) noexcept {
    detail::SipState state{seed.low ^ 0x736f6d6570736575, seed.high ^ 0x646f72616e646f6d ^ 0xee,
                           seed.low ^ 0x6c7967656e657261, seed.high ^ 0x7465646279746573};
    const size_t whole = data.size & ~size_t{7};
    for (size_t at = 0; at < whole; at += 8) state.take(detail::load_little(data.data + at));
    uint64_t last = static_cast<uint64_t>(data.size & 0xff) << 56;
    for (size_t i = 0; i < (data.size & 7); ++i) {
        last |= static_cast<uint64_t>(data.data[whole + i]) << (8 * i);
    }
    state.take(last);
    state.v2 ^= 0xee;
    Hash128 hash;
    hash.low = state.finish();
    state.v1 ^= 0xdd;
    hash.high = state.finish();
    return hash;
}

}  // namespace ringlog
