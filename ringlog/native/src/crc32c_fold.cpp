// A CRC is a remainder, and a remainder does not change when a part of the message is replaced by one that is congruent
// to it. So 128 bits are moved D bits towards the end by multiplication with x^D, and added to what stands there; what is
// left at the end, 16 bytes, goes through the CRC instructions.
//
// In the reflected representation a product of 64 and 32 bits comes out of the multiplier x^33 too large. So the lower
// half of 128 bits, which stands for itself times x^64, is multiplied with x^(D + 31), the upper one with x^(D - 33).
#include "crc32c_fold.hpp"

#include "crc32c_polynomial.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#define RINGLOG_FOLD_TARGET __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2,crc32")))

namespace ringlog {
namespace {

struct Move {
    explicit constexpr Move(size_t bits) : low(polynomial::power(bits + 31)), high(polynomial::power(bits - 33)) {}

    uint32_t low;
    uint32_t high;
};
constexpr Move kBy2048{2048};
constexpr Move kBy512{512};
constexpr Move kBy384{384};
constexpr Move kBy256{256};
constexpr Move kBy128{128};

RINGLOG_FOLD_TARGET inline __m128i factors(const Move& move) noexcept {
    return _mm_set_epi64x(int64_t{move.high}, int64_t{move.low});
}

RINGLOG_FOLD_TARGET inline __m512i load(const uint8_t* from) noexcept { return _mm512_loadu_si512(from); }

// All four lanes moved, and added to what stands there.
RINGLOG_FOLD_TARGET inline __m512i fold(__m512i lanes, __m512i by, __m512i onto) noexcept {
    constexpr int kXorOfThree = 0x96;
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(lanes, by, 0x00),
                                     _mm512_clmulepi64_epi128(lanes, by, 0x11), onto, kXorOfThree);
}

RINGLOG_FOLD_TARGET inline __m128i fold(__m128i lane, __m128i by, __m128i onto) noexcept {
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(lane, by, 0x00), _mm_clmulepi64_si128(lane, by, 0x11)),
                         onto);
}

}  // namespace

bool crc32c_can_fold() noexcept {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
           __builtin_cpu_supports("vpclmulqdq") != 0 && __builtin_cpu_supports("pclmul") != 0 &&
           __builtin_cpu_supports("sse4.2") != 0;
}

RINGLOG_FOLD_TARGET uint32_t crc32c_fold(uint32_t crc, const uint8_t*& data, size_t& size) noexcept {
    // What came before is added to the first bytes.
    __m512i first = _mm512_xor_si512(load(data), _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
    __m512i second = load(data + 64);
    __m512i third = load(data + 128);
    __m512i fourth = load(data + 192);
    data += 256;
    size -= 256;
    for (const __m512i by = _mm512_broadcast_i32x4(factors(kBy2048)); size >= 256; data += 256, size -= 256) {
        first = fold(first, by, load(data));
        second = fold(second, by, load(data + 64));
        third = fold(third, by, load(data + 128));
        fourth = fold(fourth, by, load(data + 192));
    }
    const __m512i by = _mm512_broadcast_i32x4(factors(kBy512));
    second = fold(first, by, second);
    third = fold(second, by, third);
    __m512i last = fold(third, by, fourth);
    for (; size >= 64; data += 64, size -= 64) last = fold(last, by, load(data));

    __m128i lane = _mm512_extracti32x4_epi32(last, 3);
    lane = fold(_mm512_extracti32x4_epi32(last, 2), factors(kBy128), lane);
    lane = fold(_mm512_extracti32x4_epi32(last, 1), factors(kBy256), lane);
    lane = fold(_mm512_castsi512_si128(last), factors(kBy384), lane);
    const uint64_t half = _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(lane)));
    return static_cast<uint32_t>(_mm_crc32_u64(half, static_cast<uint64_t>(_mm_extract_epi64(lane, 1))));
}

}  // namespace ringlog

#else

namespace ringlog {
bool crc32c_can_fold() noexcept { return false; }
uint32_t crc32c_fold(uint32_t crc, const uint8_t*&, size_t&) noexcept { return crc; }
}  // namespace ringlog

#endif
