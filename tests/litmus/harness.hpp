// What every litmus program needs: shared memory over a fork, a check that tells where it failed, a clock.
#pragma once
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <span>

#include "ring.hpp"

#define REQUIRE(condition, ...)                                                      \
    do {                                                                             \
        if (!(condition)) {                                                          \
            std::fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);     \
            std::fprintf(stderr, __VA_ARGS__);                                       \
            std::fprintf(stderr, "\n");                                              \
            std::_Exit(1);                                                           \
        }                                                                            \
    } while (false)

namespace litmus {

inline double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A few cycles each, that the compiler cannot take away.
inline void spin(uint64_t times) {
    for (; times > 0; --times) std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Anonymous memory that a fork shares, with an empty ring in it.
class SharedRing {
public:
    SharedRing(uint64_t capacity, uint64_t generation)
        : bytes_(ringlog::ring_layout::ring_bytes(capacity)), generation_(generation) {
        void* mapped = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        REQUIRE(mapped != MAP_FAILED, "mmap");
        memory_ = static_cast<std::byte*>(mapped);
        REQUIRE(ringlog::RingMemory::format(memory(), capacity, generation) == ringlog::RingAnswer::kOk, "format");
    }
    ~SharedRing() { ::munmap(memory_, bytes_); }
    SharedRing(const SharedRing&) = delete;
    SharedRing& operator=(const SharedRing&) = delete;

    std::span<std::byte> memory() const { return {memory_, bytes_}; }
    uint64_t generation() const { return generation_; }

    template <class Side>
    void attach(Side& side) const {
        REQUIRE(side.attach(memory(), generation_) == ringlog::RingAnswer::kOk, "attach: %s", side.fault().reason);
    }

private:
    size_t bytes_;
    uint64_t generation_;
    std::byte* memory_;
};

// Counters that outlive a killed child.
template <class T>
class SharedCounters {
public:
    SharedCounters() {
        void* mapped = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        REQUIRE(mapped != MAP_FAILED, "mmap");
        counters_ = new (mapped) T{};
    }
    ~SharedCounters() { ::munmap(counters_, sizeof(T)); }
    SharedCounters(const SharedCounters&) = delete;
    SharedCounters& operator=(const SharedCounters&) = delete;
    T* operator->() const { return counters_; }

private:
    T* counters_;
};

}  // namespace litmus
