// Zigzag varints, as records use them: 32 bits in at most 5 bytes, 64 bits in at most 10.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace ringlog {

constexpr int kVarintBytesMax = 5;  // of 32 bits

template <class Int>
constexpr std::make_unsigned_t<Int> zigzag(Int value) noexcept {
    using Unsigned = std::make_unsigned_t<Int>;
    constexpr int kSign = std::numeric_limits<Unsigned>::digits - 1;
    return static_cast<Unsigned>(static_cast<Unsigned>(value) << 1) ^ static_cast<Unsigned>(value >> kSign);
}

template <class Unsigned>
constexpr std::make_signed_t<Unsigned> unzigzag(Unsigned value) noexcept {
    return static_cast<std::make_signed_t<Unsigned>>((value >> 1) ^ (Unsigned{0} - (value & 1)));
}

// Bytes that the varint of `value` takes.
template <class Int>
constexpr size_t varint_size(Int value) noexcept {
    const uint64_t folded = zigzag(value);
    // Seven bits to a byte, rounded up: (bits + 6) / 7 for 1 to 64 bits, without the division.
    return (static_cast<size_t>(std::bit_width(folded | 1)) * 9 + 64) / 64;
}

template <class Int>
inline uint8_t* write_varint(uint8_t* to, Int value) noexcept {
    auto folded = zigzag(value);
    while (folded >= 0x80) {
        *to++ = static_cast<uint8_t>(folded | 0x80);
        folded >>= 7;
    }
    *to++ = static_cast<uint8_t>(folded);
    return to;
}

namespace detail {
// Given back in two registers: a value handed out by reference would have to live in memory.
template <class Int>
struct LongVarint {
    const uint8_t* behind;
    Int value;
};

template <class Int>
[[gnu::noinline]] LongVarint<Int> read_long_varint(const uint8_t* from, const uint8_t* end) noexcept {
    using Unsigned = std::make_unsigned_t<Int>;
    constexpr int kBits = std::numeric_limits<Unsigned>::digits;
    Unsigned folded = 0;
    for (int shift = 0; from != end && shift < kBits; shift += 7) {
        const uint8_t byte = *from++;
        const Unsigned bits = byte & 0x7f;
        if (shift > kBits - 7 && (bits >> (kBits - shift)) != 0) break;
        folded |= static_cast<Unsigned>(bits << shift);
        if (byte < 0x80) return {from, unzigzag(folded)};
    }
    return {nullptr, 0};
}
}  // namespace detail

// Reads one varint from [from, end). Returns the byte behind it, or null when it does not end before
// `end` or holds more bits than Int has.
template <class Int>
[[gnu::always_inline]] inline const uint8_t* read_varint(const uint8_t* from, const uint8_t* end,
                                                         Int& value) noexcept {
    using Unsigned = std::make_unsigned_t<Int>;
    // One byte, or two: nearly all lengths and deltas.
    if (from == end) [[unlikely]]
        return nullptr;
    const Unsigned low = from[0];
    if (low < 0x80) {
        value = unzigzag(low);
        return from + 1;
    }
    if (end - from >= 2 && from[1] < 0x80) {
        value = unzigzag(static_cast<Unsigned>((low & 0x7f) | static_cast<Unsigned>(from[1]) << 7));
        return from + 2;
    }
    const auto [behind, read] = detail::read_long_varint<Int>(from, end);
    value = read;
    return behind;
}

}  // namespace ringlog
