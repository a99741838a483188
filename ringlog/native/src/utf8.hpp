// Whether bytes are UTF-8 as Unicode defines it: no overlong forms, no surrogates, nothing past U+10FFFF.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ringlog {

inline bool is_utf8(const uint8_t* from, size_t size) noexcept {
    const uint8_t* const end = from + size;
    while (from != end) {
        const uint8_t lead = *from++;
        if (lead < 0x80) continue;
        int followers = 1;
        uint8_t low = 0x80;  // the range of the first follower; those behind it are always 80..BF
        uint8_t high = 0xbf;
        if (lead >= 0xc2 && lead <= 0xdf) {
            followers = 1;
        } else if (lead >= 0xe0 && lead <= 0xef) {
            followers = 2;
            if (lead == 0xe0) low = 0xa0;
            if (lead == 0xed) high = 0x9f;
        } else if (lead >= 0xf0 && lead <= 0xf4) {
            followers = 3;
            if (lead == 0xf0) low = 0x90;
            if (lead == 0xf4) high = 0x8f;
        } else {
            return false;
        }
        if (end - from < followers) return false;
        if (*from < low || *from > high) return false;
        for (int i = 1; i < followers; ++i) {
            if (from[i] < 0x80 || from[i] > 0xbf) return false;
        }
        from += followers;
    }
    return true;
}

}  // namespace ringlog
