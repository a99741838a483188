// The latest offset of each key, in memory of a fixed size: open addressing over 128-bit hashes.
//
//   slot, 24 bytes:  hash (16)  offset + 1 (8); 0: the slot is free
//
// Keys themselves are not kept: two keys with the same hash would count as one. The hash is keyed with random
// bytes, so that this takes 2^64 keys, whoever chooses them.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "siphash.hpp"

namespace ringlog {

class KeyMap {
public:
    // Takes at most `bytes`, at least one slot. Memory that is never used is never touched.
    KeyMap(size_t bytes, const Hash128& seed)
        : slots_(bytes / sizeof(Slot) > 0 ? bytes / sizeof(Slot) : 1),
          seed_(seed),
          memory_(static_cast<Slot*>(std::calloc(slots_, sizeof(Slot)))) {
        if (memory_ == nullptr) throw std::bad_alloc();
    }

    size_t size() const noexcept { return size_; }
    // A quarter stays free, so that a search ends soon.
    size_t capacity() const noexcept { return slots_ - (slots_ + 3) / 4; }

    // Notes that a key has a record at this offset. False when the key is new and there is no room for it.
    bool put(Bytes key, int64_t offset) noexcept {
        const Hash128 hash = siphash128(key, seed_);
        Slot& slot = find(hash);
        if (slot.next == 0) {
            if (size_ >= capacity()) return false;
            slot.hash = hash;
            ++size_;
        }
        if (slot.next <= offset) slot.next = offset + 1;
        return true;
    }

    // The highest offset that was put for a key, or -1.
    int64_t get(Bytes key) const noexcept { return find(siphash128(key, seed_)).next - 1; }

private:
    struct Slot {
        Hash128 hash;
        int64_t next;  // the offset behind the key's record
    };
    static_assert(sizeof(Slot) == 24);

    struct Free {
        void operator()(Slot* memory) const noexcept { std::free(memory); }
    };

    // The slot of a hash, or the free one where it belongs. There is always a free one.
    Slot& find(const Hash128& hash) const noexcept {
        __extension__ using Wide = unsigned __int128;
        auto at = static_cast<size_t>((static_cast<Wide>(hash.low) * slots_) >> 64);
        while (memory_[at].next != 0 && !(memory_[at].hash == hash)) at = at + 1 == slots_ ? 0 : at + 1;
        return memory_[at];
    }

    size_t slots_;
    size_t size_ = 0;
    Hash128 seed_;
    std::unique_ptr<Slot[], Free> memory_;
};

}  // namespace ringlog
