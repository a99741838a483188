// Arithmetic modulo CRC32C's polynomial, on 32 bits in the reflected representation: bit 31 is x^0.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ringlog::polynomial {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli, bit-reflected
constexpr uint32_t kOne = 0x80000000;         // x^0

// a · b
constexpr uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
        if ((a & bit) != 0) product ^= b;
        b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
    }
    return product;
}

// x^exponent
constexpr uint32_t power(size_t exponent) {
    uint32_t result = kOne;
    for (uint32_t square = kOne >> 1; exponent != 0; exponent >>= 1, square = multiply(square, square)) {
        if ((exponent & 1) != 0) result = multiply(result, square);
    }
    return result;
}

}  // namespace ringlog::polynomial
