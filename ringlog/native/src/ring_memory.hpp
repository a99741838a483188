// A ring's memory: made once per generation, then looked at through checks only.
//
// Nothing that is read from the memory is trusted: what came from the peer is compared with what this side
// knows before it becomes an address. A ring that fails a check is never repaired; its handle answers
// `corrupt` from then on and whoever owns the ring makes a new generation.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fault.hpp"
#include "ring_layout.hpp"

namespace ringlog {

enum class RingAnswer : uint8_t {
    kOk,
    kFull,      // writer: no room until the reader releases; a normal answer
    kEmpty,     // reader: nothing is published behind the cursor; a normal answer
    kTooLarge,  // the message fits into no state of this ring
    kMisuse,    // out of turn: a second claim, a commit without one, a release beyond what was read
    kClosed,    // the other side closed: nothing will be read, or nothing more will come
    kTaken,     // this generation already has, or had, such a side
    kStale,     // the memory is of another generation than the handle
    kCorrupt,   // the memory cannot be a ring in any state that this code produces
};

template <class T>
std::atomic_ref<T> shared_word(T& word) noexcept {
    static_assert(std::atomic_ref<T>::is_always_lock_free, "a lock inside shared memory would not survive a kill");
    return std::atomic_ref<T>(word);
}

class RingMemory {
public:
    RingMemory() = default;

    // Makes an empty ring. Only for memory that no living handle is bound to.
    static RingAnswer format(std::span<std::byte> memory, uint64_t capacity, uint64_t generation) noexcept {
        using namespace ring_layout;
        if (!is_capacity(capacity) || memory.size() < ring_bytes(capacity) || generation == 0 ||
            reinterpret_cast<uintptr_t>(memory.data()) % kWordBytes != 0) {
            return RingAnswer::kMisuse;
        }
        auto& header = *reinterpret_cast<RingHeader*>(memory.data());
        shared_word(header.magic).store(0, std::memory_order_seq_cst);
        header.layout_version = kVersion;
        header.zero = 0;
        header.capacity = capacity;
        header.generation = generation;
        header.writer_state = 0;
        header.reader_state = 0;
        header.producer_position = 0;
        header.consumer_position = 0;
        header.reader_waits = 0;
        *reinterpret_cast<uint64_t*>(memory.data() + kRingHeaderBytes) = 0;
        // Last: who sees the magic sees all of the above.
        shared_word(header.magic).store(kMagic, std::memory_order_release);
        return RingAnswer::kOk;
    }

    // Every handle of the generation answers `stale` from its next call on.
    void retire() noexcept { shared_word(header_->generation).store(0, std::memory_order_release); }

    // Looks at existing memory. On `corrupt`, says why in `fault`.
    RingAnswer open(std::span<std::byte> memory, uint64_t generation, Fault& fault) noexcept {
        using namespace ring_layout;
        if (reinterpret_cast<uintptr_t>(memory.data()) % kWordBytes != 0) {
            return RingAnswer::kMisuse;
        }
        if (memory.size() < ring_bytes(kCapacityMin)) {
            fault = {"memory", static_cast<int64_t>(memory.size()), "smaller than the smallest ring"};
            return RingAnswer::kCorrupt;
        }
        auto& header = *reinterpret_cast<RingHeader*>(memory.data());
        if (shared_word(header.magic).load(std::memory_order_acquire) != kMagic) {
            fault = {"magic", offsetof(RingHeader, magic), "not a ring, or not yet made"};
            return RingAnswer::kCorrupt;
        }
        if (shared_word(header.layout_version).load(std::memory_order_relaxed) != kVersion) {
            fault = {"layout version", offsetof(RingHeader, layout_version), "made by another version of ringlog"};
            return RingAnswer::kCorrupt;
        }
        const uint64_t capacity = shared_word(header.capacity).load(std::memory_order_relaxed);
        if (!is_capacity(capacity) || ring_bytes(capacity) > memory.size()) {
            fault = {"capacity", offsetof(RingHeader, capacity), "not a power of two that the memory can hold"};
            return RingAnswer::kCorrupt;
        }
        header_ = &header;
        data_ = memory.data() + kRingHeaderBytes;
        capacity_ = capacity;
        generation_ = generation;
        if (!is_current()) return RingAnswer::kStale;
        return RingAnswer::kOk;
    }

    bool is_current() const noexcept {
        return shared_word(header_->generation).load(std::memory_order_relaxed) == generation_ && generation_ != 0;
    }

    RingHeader& header() const noexcept { return *header_; }
    uint64_t capacity() const noexcept { return capacity_; }
    uint64_t generation() const noexcept { return generation_; }
    uint64_t body_bytes_max() const noexcept { return ring_layout::body_bytes_max(capacity_); }

    // The place of a position in the data area. Always inside, whatever the position.
    uint64_t place(uint64_t position) const noexcept { return position & (capacity_ - 1); }
    std::byte* at(uint64_t position) const noexcept { return data_ + place(position); }
    // Offset of a position from the start of the memory, as the face of the ring counts.
    uint64_t offset(uint64_t position) const noexcept { return ring_layout::kRingHeaderBytes + place(position); }
    // `position` is a multiple of 8, so the word is whole and aligned.
    std::atomic_ref<uint64_t> word_at(uint64_t position) const noexcept {
        return shared_word(*reinterpret_cast<uint64_t*>(at(position)));
    }

    // The state of one side goes from never attached to attached, for one caller only.
    RingAnswer attach(uint32_t& side, Fault& fault) noexcept {
        auto expected = static_cast<uint32_t>(RingSide::kNeverAttached);
        if (shared_word(side).compare_exchange_strong(expected, static_cast<uint32_t>(RingSide::kAttached))) {
            return RingAnswer::kOk;
        }
        if (expected > static_cast<uint32_t>(RingSide::kClosed)) {
            const auto position = reinterpret_cast<std::byte*>(&side) - reinterpret_cast<std::byte*>(header_);
            fault = {"side state", position, "neither unattached, attached nor closed"};
            return RingAnswer::kCorrupt;
        }
        return RingAnswer::kTaken;
    }
    static bool is_closed(uint32_t& side) noexcept {
        return shared_word(side).load(std::memory_order_acquire) == static_cast<uint32_t>(RingSide::kClosed);
    }
    static void close(uint32_t& side) noexcept {
        shared_word(side).store(static_cast<uint32_t>(RingSide::kClosed), std::memory_order_release);
    }

    // The two positions as one side finds them when it attaches.
    RingAnswer positions(uint64_t& producer, uint64_t& consumer, Fault& fault) noexcept {
        // Consumer first: the producer's can only have moved on since, which keeps the relation.
        consumer = shared_word(header_->consumer_position).load(std::memory_order_acquire);
        producer = shared_word(header_->producer_position).load(std::memory_order_acquire);
        if (!ring_layout::is_aligned(consumer)) {
            fault = {"consumer position", offsetof(RingHeader, consumer_position), "not a multiple of 8"};
            return RingAnswer::kCorrupt;
        }
        if (!ring_layout::is_aligned(producer) || producer < consumer || producer > ring_layout::kPositionMax) {
            fault = {"producer position", offsetof(RingHeader, producer_position),
                     "unaligned, behind the reader, or further than any ring comes"};
            return RingAnswer::kCorrupt;
        }
        return RingAnswer::kOk;
    }

private:
    RingHeader* header_ = nullptr;
    std::byte* data_ = nullptr;
    uint64_t capacity_ = 0;  // our own copy: the one in memory is not read again
    uint64_t generation_ = 0;
};

}  // namespace ringlog
