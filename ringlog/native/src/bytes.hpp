// Unaligned big-endian loads and stores, and the one byte range type of the kernel.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ringlog {

// A borrowed byte range. Who makes one vouches that `size` bytes stay readable while it is used.
struct Bytes {
    const uint8_t* data = nullptr;
    size_t size = 0;
};

namespace detail {
template <class T>
inline T swap_to_big(T value) noexcept {
    if constexpr (std::endian::native == std::endian::big || sizeof(T) == 1) {
        return value;
    } else if constexpr (sizeof(T) == 2) {
        return static_cast<T>(__builtin_bswap16(static_cast<uint16_t>(value)));
    } else if constexpr (sizeof(T) == 4) {
        return static_cast<T>(__builtin_bswap32(static_cast<uint32_t>(value)));
    } else {
        return static_cast<T>(__builtin_bswap64(static_cast<uint64_t>(value)));
    }
}
}  // namespace detail

template <class T>
inline T load_big(const uint8_t* at) noexcept {
    T value;
    std::memcpy(&value, at, sizeof value);
    return detail::swap_to_big(value);
}

template <class T>
inline void store_big(uint8_t* at, T value) noexcept {
    value = detail::swap_to_big(value);
    std::memcpy(at, &value, sizeof value);
}

}  // namespace ringlog
