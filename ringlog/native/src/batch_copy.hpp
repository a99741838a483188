// Copies batches, and takes the CRC of each piece of them while the core has it at hand: one pass instead of two.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "batch_scan.hpp"
#include "crc32c.hpp"

namespace ringlog {

// Memory that is filled from its beginning, one room after another. Who fills it has seen that there is enough.
class Rooms {
public:
    explicit Rooms(std::span<const std::span<uint8_t>> rooms) noexcept : rooms_(rooms) {}

    void copy(Bytes from) noexcept {
        while (from.size != 0) from = copy_piece(from, from.size).rest;
    }

    // Returns the CRC of the copy: what is copied may change meanwhile.
    uint32_t copy_and_sum(Bytes from) noexcept {
        constexpr size_t kPiece = 8192;
        uint32_t crc = 0;
        while (from.size != 0) {
            const Copied copied = copy_piece(from, kPiece);
            crc = crc32c(copied.piece.data, copied.piece.size, crc);
            from = copied.rest;
        }
        return crc;
    }

private:
    struct Copied {
        Bytes piece;  // where it lies now
        Bytes rest;   // of what is to be copied
    };

    Copied copy_piece(Bytes from, size_t bytes_max) noexcept {
        while (used_ == rooms_.front().size()) {
            rooms_ = rooms_.subspan(1);
            used_ = 0;
        }
        uint8_t* const to = rooms_.front().data() + used_;
        const size_t bytes = std::min({from.size, bytes_max, rooms_.front().size() - used_});
        std::memcpy(to, from.data, bytes);
        used_ += bytes;
        return {{to, bytes}, {from.data + bytes, from.size - bytes}};
    }

    std::span<const std::span<uint8_t>> rooms_;
    size_t used_ = 0;  // of the first one that is left
};

// Copies what may be a batch, and returns the CRC that the copy should name.
inline uint32_t copy_batch(Rooms& into, Bytes from) noexcept {
    const size_t head = std::min(from.size, kCrcBegin);
    into.copy({from.data, head});
    return into.copy_and_sum({from.data + head, from.size - head});
}

// Copies whole batches that nobody changes meanwhile, up to the first one whose header or CRC is wrong.
inline Fault copy_whole_batches(Rooms& into, Bytes from) noexcept {
    ScanRules rules;
    rules.level = Level::kHeaders;
    BatchCursor cursor(from, rules);
    BatchRow row;
    while (cursor.next(row)) {
        if (copy_batch(into, {from.data + row.position, static_cast<size_t>(row.length)}) != row.crc) {
            return wrong_crc(row.position);
        }
    }
    return cursor.fault();
}

}  // namespace ringlog
