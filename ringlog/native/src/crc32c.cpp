// CRC32C by SSE4.2, by ARMv8 or by tables; long ranges by folding, where the machine can (crc32c_fold.cpp).
//
// The CRC instructions take three cycles to answer but start one every cycle, so the hardware paths run
// three streams side by side over three equal pieces and join their CRCs afterwards. Joining means
// advancing a CRC over as many zero bytes as the next piece is long. That is a linear map of 32 bits; for
// the two piece sizes in use it is kept as four tables of 256 words, built at compile time.
#include "crc32c.hpp"

#include <array>
#include <bit>
#include <cstring>

#include "crc32c_fold.hpp"
#include "crc32c_polynomial.hpp"

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace ringlog {
namespace {

using polynomial::kOne;
using polynomial::kPolynomial;
using polynomial::multiply;

// kSquares[k] = x^(8 · 2^k): one zero byte, two, four, …
constexpr std::array<uint32_t, 64> make_squares() {
    std::array<uint32_t, 64> squares{};
    uint32_t power = kOne >> 8;
    for (auto& square : squares) {
        square = power;
        power = multiply(power, power);
    }
    return squares;
}
constexpr auto kSquares = make_squares();

// x^(8 · size): what a CRC is multiplied with when `size` zero bytes follow.
constexpr uint32_t zeros_operator(size_t size) {
    uint32_t power = kOne;
    for (size_t k = 0; size != 0; ++k, size >>= 1) {
        if ((size & 1) != 0) power = multiply(power, kSquares[k]);
    }
    return power;
}

using ByteTable = std::array<uint32_t, 256>;

// Slicing-by-8: table[k][b] is the CRC of byte b followed by k zero bytes.
constexpr std::array<ByteTable, 8> make_slices() {
    std::array<ByteTable, 8> slices{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
        slices[0][byte] = crc;
    }
    for (size_t k = 1; k < 8; ++k) {
        for (size_t byte = 0; byte < 256; ++byte) {
            const uint32_t before = slices[k - 1][byte];
            slices[k][byte] = (before >> 8) ^ slices[0][before & 0xff];
        }
    }
    return slices;
}
constexpr auto kSlices = make_slices();

inline uint64_t load_little(const uint8_t* at) noexcept {
    uint64_t word;
    std::memcpy(&word, at, sizeof word);
    if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
    return word;
}

uint32_t run_portable(uint32_t crc, const uint8_t* data, size_t size) noexcept {
    for (; size >= 8; data += 8, size -= 8) {
        const uint64_t word = load_little(data) ^ crc;
        crc = kSlices[7][word & 0xff] ^ kSlices[6][(word >> 8) & 0xff] ^ kSlices[5][(word >> 16) & 0xff] ^
              kSlices[4][(word >> 24) & 0xff] ^ kSlices[3][(word >> 32) & 0xff] ^
              kSlices[2][(word >> 40) & 0xff] ^ kSlices[1][(word >> 48) & 0xff] ^ kSlices[0][word >> 56];
    }
    for (; size != 0; ++data, --size) crc = (crc >> 8) ^ kSlices[0][(crc ^ *data) & 0xff];
    return crc;
}

#if defined(__x86_64__)
#define RINGLOG_CRC_TARGET __attribute__((target("sse4.2,crc32")))
constexpr const char* kHardwareName = "sse4.2";
RINGLOG_CRC_TARGET inline uint64_t step8(uint64_t crc, uint64_t word) noexcept {
    return _mm_crc32_u64(crc, word);
}
RINGLOG_CRC_TARGET inline uint32_t step1(uint32_t crc, uint8_t byte) noexcept {
    return _mm_crc32_u8(crc, byte);
}
bool hardware_present() noexcept {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
}
#elif defined(__aarch64__) && defined(__linux__)
#if defined(__clang__)
#define RINGLOG_CRC_TARGET __attribute__((target("crc")))
#else
#define RINGLOG_CRC_TARGET __attribute__((target("+crc")))
#endif
constexpr const char* kHardwareName = "armv8";
constexpr unsigned long kHwcapCrc32 = 1UL << 7;  // HWCAP_CRC32 of <asm/hwcap.h>
RINGLOG_CRC_TARGET inline uint64_t step8(uint64_t crc, uint64_t word) noexcept {
    return __crc32cd(static_cast<uint32_t>(crc), word);
}
RINGLOG_CRC_TARGET inline uint32_t step1(uint32_t crc, uint8_t byte) noexcept { return __crc32cb(crc, byte); }
bool hardware_present() noexcept { return (getauxval(AT_HWCAP) & kHwcapCrc32) != 0; }
#endif

#if defined(RINGLOG_CRC_TARGET)
constexpr size_t kLongPiece = 4096;
constexpr size_t kShortPiece = 256;

// Advances a CRC over a fixed number of zero bytes: four table look-ups.
struct ZerosTable {
    std::array<ByteTable, 4> bytes{};

    explicit constexpr ZerosTable(size_t size) {
        const uint32_t power = zeros_operator(size);
        for (uint32_t k = 0; k < 4; ++k) {
            for (uint32_t byte = 0; byte < 256; ++byte) bytes[k][byte] = multiply(power, byte << (8 * k));
        }
    }
    uint32_t advance(uint32_t crc) const noexcept {
        return bytes[0][crc & 0xff] ^ bytes[1][(crc >> 8) & 0xff] ^ bytes[2][(crc >> 16) & 0xff] ^
               bytes[3][crc >> 24];
    }
};
// Built when the module loads, not by the compiler: its limit on constant evaluation is lower.
const ZerosTable kAfterLong{kLongPiece};
const ZerosTable kAfterShort{kShortPiece};

template <size_t Piece>
RINGLOG_CRC_TARGET inline uint32_t run_three(uint32_t crc, const uint8_t*& data, size_t& size,
                                             const ZerosTable& after) noexcept {
    while (size >= 3 * Piece) {
        uint64_t first = crc;
        uint64_t second = 0;
        uint64_t third = 0;
        for (size_t at = 0; at < Piece; at += 8) {
            first = step8(first, load_little(data + at));
            second = step8(second, load_little(data + at + Piece));
            third = step8(third, load_little(data + at + 2 * Piece));
        }
        crc = after.advance(static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second);
        crc = after.advance(crc) ^ static_cast<uint32_t>(third);
        data += 3 * Piece;
        size -= 3 * Piece;
    }
    return crc;
}

RINGLOG_CRC_TARGET uint32_t run_hardware(uint32_t crc, const uint8_t* data, size_t size) noexcept {
    crc = run_three<kLongPiece>(crc, data, size, kAfterLong);
    crc = run_three<kShortPiece>(crc, data, size, kAfterShort);
    uint64_t wide = crc;
    for (; size >= 8; data += 8, size -= 8) wide = step8(wide, load_little(data));
    crc = static_cast<uint32_t>(wide);
    for (; size != 0; ++data, --size) crc = step1(crc, *data);
    return crc;
}
#else
constexpr const char* kHardwareName = "portable";
bool hardware_present() noexcept { return false; }
uint32_t run_hardware(uint32_t crc, const uint8_t* data, size_t size) noexcept {
    return run_portable(crc, data, size);
}
#endif

const bool kHardwarePresent = hardware_present();
const bool kFolds = crc32c_can_fold();

uint32_t run_instructions(uint32_t crc, const uint8_t* data, size_t size) noexcept {
    return kHardwarePresent ? run_hardware(crc, data, size) : run_portable(crc, data, size);
}

}  // namespace

uint32_t crc32c(const uint8_t* data, size_t size, uint32_t seed) noexcept {
    uint32_t crc = ~seed;
    if (kFolds && size >= kFoldBytesMin) crc = crc32c_fold(crc, data, size);
    return ~run_instructions(crc, data, size);
}

uint32_t crc32c_unfolded(const uint8_t* data, size_t size, uint32_t seed) noexcept {
    return ~run_instructions(~seed, data, size);
}

uint32_t crc32c_portable(const uint8_t* data, size_t size, uint32_t seed) noexcept {
    return ~run_portable(~seed, data, size);
}

const char* crc32c_path() noexcept {
    if (kFolds) return "avx512";
    return kHardwarePresent ? kHardwareName : "portable";
}

// With the inversions at both ends: crc(A·B) = crc(A) · x^(8|B|) + crc(B).
uint32_t crc32c_of_suffix(uint32_t prefix_crc, uint32_t whole_crc, size_t suffix_size) noexcept {
    return whole_crc ^ multiply(zeros_operator(suffix_size), prefix_crc);
}

}  // namespace ringlog
