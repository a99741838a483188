// Reads records again that RecordParser has accepted before.
//
// Asks only for what keeps it inside `end`: the memory may be shared, and its bytes may have changed since.
// Null or false: they have.
#pragma once
#include <cstdint>

#include "bytes.hpp"
#include "record.hpp"
#include "record_plain.hpp"
#include "varint.hpp"

namespace ringlog {

namespace detail {

inline const uint8_t* reread_field(const uint8_t* at, const uint8_t* end, Field& field) noexcept {
    at = read_varint(at, end, field.length);
    if (at == nullptr || field.length > end - at) return nullptr;
    field.data = at;
    return at + field.bytes();
}

// A record of any shape. Returns the byte behind it. Not inlined, so that the loop over plain records has
// the registers for itself.
[[gnu::noinline]] inline const uint8_t* reread_record(const uint8_t* begin, const uint8_t* end,
                                                      Record& record) noexcept {
    int32_t length = 0;
    const uint8_t* at = read_varint(begin, end, length);
    if (at == nullptr || length < 1 || length > end - at) return nullptr;
    const uint8_t* const behind = at + length;
    at = read_varint(at + 1, behind, record.timestamp_delta);
    if (at != nullptr) at = read_varint(at, behind, record.offset_delta);
    if (at != nullptr) at = reread_field(at, behind, record.key);
    if (at != nullptr) at = reread_field(at, behind, record.value);
    if (at != nullptr) at = read_varint(at, behind, record.header_count);
    record.begin = begin;
    record.headers = at;
    return at == nullptr ? nullptr : behind;
}

}  // namespace detail

// Calls visit(record, behind) with `count` records, each a PlainRecord or a Record, and the byte behind it.
// False when the bytes have changed, or as soon as the visitor says so.
template <class Visit>
[[gnu::always_inline]] inline bool reread_records(Bytes records, int64_t count, Visit&& visit) noexcept {
    const uint8_t* at = records.data;
    const uint8_t* const end = at + records.size;
    while (count > 0) {
        for (PlainRecord record; count > 0; --count) {
            const uint8_t* const behind = read_plain(at, end, record);
            if (behind == nullptr) break;
            if (!visit(record, behind)) return false;
            at = behind;
        }
        // Where one record has headers, the next likely has too, and is not plain either.
        for (Record record; count > 0; --count) {
            at = detail::reread_record(at, end, record);
            if (at == nullptr || !visit(record, at)) return false;
            if (record.header_count != 0) continue;
            --count;
            break;
        }
    }
    return true;
}

// Steps through the headers of a record, from Record::headers on.
inline bool next_header(const uint8_t*& at, const uint8_t* end, Field& key, Field& value) noexcept {
    at = detail::reread_field(at, end, key);
    if (at != nullptr) at = detail::reread_field(at, end, value);
    return at != nullptr && key.length >= 0;
}

}  // namespace ringlog
