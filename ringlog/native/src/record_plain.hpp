// Reads plain records: short varints, no headers and nothing wrong, as nearly all records are.
//
// What read_plain() accepts, the careful readers accept too, and read the same from it. What it does not
// like, be it wrong or only rare, is left to them: they know every shape and the name of every fault. So here
// what can be judged together is judged once.
#pragma once
#include <cstddef>
#include <cstdint>

#include "varint.hpp"

namespace ringlog {

// Bytes or null, with the length as it is stored: 2n for n bytes, 1 for null. Both halve to the right size.
struct PlainField {
    const uint8_t* data = nullptr;
    uint32_t folded_length = 1;

    int64_t bytes() const noexcept { return folded_length >> 1; }
    bool is_null() const noexcept { return (folded_length & 1) != 0; }
    bool is_right() const noexcept { return !is_null() || folded_length == 1; }
};

// Has the members of a Record, so that a visitor of records takes either.
struct PlainRecord {
    static constexpr int32_t header_count = 0;
    static constexpr const uint8_t* headers = nullptr;

    const uint8_t* begin = nullptr;
    int32_t timestamp_delta = 0;
    int32_t offset_delta = 0;
    PlainField key;
    PlainField value;
};

namespace detail {

// Reads varints that are still folded, without asking where the bytes end: the caller knows that they are
// there. How many bytes a number takes is a branch, because neighbouring records mostly agree in it.
class ShortVarints {
public:
    explicit ShortVarints(const uint8_t* at) noexcept : at_(at) {}

    const uint8_t* at() const noexcept { return at_; }
    void skip(int64_t bytes) noexcept { at_ += bytes; }

    // False when a varint was longer than it may be here; then what was read means nothing.
    bool all_short() const noexcept { return (last_bytes_ & 0x80) == 0; }

    // At most two bytes.
    [[gnu::always_inline]] uint32_t length() noexcept {
        const uint32_t low = *at_++;
        if (low < 0x80) return low;
        const uint32_t high = *at_++;
        last_bytes_ |= high;
        return low - 0x80 + (high << 7);
    }

    // At most three bytes.
    [[gnu::always_inline]] uint32_t delta() noexcept {
        const uint32_t low = *at_++;
        if (low < 0x80) return low;
        const uint32_t middle = *at_++;
        if (middle < 0x80) return low - 0x80 + (middle << 7);
        const uint32_t high = *at_++;
        last_bytes_ |= high;
        return low - 0x80 + ((middle - 0x80) << 7) + (high << 14);
    }

private:
    const uint8_t* at_;
    uint32_t last_bytes_ = 0;  // of all that may not go on, or-ed
};

}  // namespace detail

// Length, attributes, both deltas and the key's length, each as long as read_plain() takes it.
constexpr ptrdiff_t kPlainBeginBytesMax = 2 + 1 + 3 + 3 + 2;

// Deltas are smaller than this, in both directions.
constexpr int64_t kPlainDeltaEnd = int64_t{1} << 20;

// Returns the byte behind the record, or null when it is not plain. Reads nothing at or behind `end`.
[[gnu::always_inline]] inline const uint8_t* read_plain(const uint8_t* begin, const uint8_t* end,
                                                        PlainRecord& record) noexcept {
    if (end - begin < kPlainBeginBytesMax) [[unlikely]]
        return nullptr;
    detail::ShortVarints from(begin);
    const uint32_t folded_length = from.length();
    if (folded_length >> 1 > end - from.at()) [[unlikely]]
        return nullptr;
    const uint8_t* const behind = from.at() + (folded_length >> 1);
    from.skip(1);  // attributes
    const uint32_t folded_timestamp_delta = from.delta();
    const uint32_t folded_offset_delta = from.delta();

    record.key.folded_length = from.length();
    record.key.data = from.at();
    // Behind the key come at least a byte of the value's length and one of the count of headers. With these
    // two, whatever length() reads next lies within the record.
    if (record.key.bytes() > behind - from.at() - 2) [[unlikely]]
        return nullptr;
    from.skip(record.key.bytes());

    record.value.folded_length = from.length();
    record.value.data = from.at();
    // The value fills the record, but for a count of no headers.
    if (record.value.bytes() != behind - from.at() - 1 || behind[-1] != 0) return nullptr;

    const bool is_negative = ((folded_length | folded_offset_delta) & 1) != 0;
    if (is_negative || !from.all_short() || !record.key.is_right() || !record.value.is_right()) [[unlikely]]
        return nullptr;
    record.begin = begin;
    record.timestamp_delta = unzigzag(folded_timestamp_delta);
    record.offset_delta = static_cast<int32_t>(folded_offset_delta >> 1);
    return behind;
}

}  // namespace ringlog
