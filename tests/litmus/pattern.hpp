// The messages of the litmus tests: message i of a run has a size, a kind and content that follow from i.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace litmus {

inline uint64_t scramble(uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

class Pattern {
public:
    Pattern(uint64_t seed, uint64_t body_bytes_max) : seed_(seed), sizes_(body_bytes_max + 1) {}

    // Every size once, then sizes at random, small ones more often.
    size_t size(uint64_t i) const {
        if (i < sizes_) return i;
        const uint64_t random = scramble(seed_ ^ i);
        return (random & 1) != 0 ? (random >> 1) % sizes_ : (random >> 1) % 64;
    }
    // The same for a run of kRun messages, since a bulk write has one kind.
    static constexpr uint64_t kRun = 8;
    uint32_t kind(uint64_t i) const { return static_cast<uint32_t>(i / kRun) & 0x7fffffff; }
    size_t left_in_run(uint64_t i) const { return kRun - i % kRun; }

    void fill(uint64_t i, std::span<std::byte> body) const {
        for (size_t at = 0; at < body.size(); at += 8) {
            const uint64_t word = scramble(seed_ + i * 1315423911 + at);
            std::memcpy(body.data() + at, &word, body.size() - at < 8 ? body.size() - at : 8);
        }
    }
    std::span<const std::byte> make(uint64_t i, std::vector<std::byte>& scratch) const {
        scratch.resize(size(i));
        fill(i, scratch);
        return scratch;
    }
    bool matches(uint64_t i, uint32_t kind_seen, std::span<const std::byte> body) const {
        if (body.size() != size(i) || kind_seen != kind(i)) return false;
        for (size_t at = 0; at < body.size(); at += 8) {
            const uint64_t word = scramble(seed_ + i * 1315423911 + at);
            if (std::memcmp(body.data() + at, &word, body.size() - at < 8 ? body.size() - at : 8) != 0) return false;
        }
        return true;
    }

private:
    uint64_t seed_;
    uint64_t sizes_;
};

}  // namespace litmus
