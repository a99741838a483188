// Zigzag varints, as records use them: 32 bits in at most 5 bytes, 64 bits in at most 10.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace ringlog {

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
    return (static_cast<size_t>(std::bit_width(folded | 1)) + 6) / 7;
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

// Reads one varint from [from, end). Returns the byte behind it, or null when it does not end before
// `end` or holds more bits than Int has.
template <class Int>
inline const uint8_t* read_varint(const uint8_t* from, const uint8_t* end, Int& value) noexcept {
    using Unsigned = std::make_unsigned_t<Int>;
    constexpr int kBits = std::numeric_limits<Unsigned>::digits;
    if (from == end) return nullptr;
    uint8_t byte = *from++;
    Unsigned folded = byte & 0x7f;
    for (int shift = 7; byte >= 0x80; shift += 7) {
        if (from == end || shift >= kBits) return nullptr;
        byte = *from++;
        const Unsigned bits = byte & 0x7f;
        if (shift > kBits - 7 && (bits >> (kBits - shift)) != 0) return nullptr;
        folded |= static_cast<Unsigned>(bits << shift);
    }
    value = unzigzag(folded);
    return from;
}

}  // namespace ringlog
