// Encodes the records of any source: measured first, then written into memory of exactly that size.
//
// A Source is column-like, and made by a binding:
//   int32_t count() const                              records
//   Piece key(int32_t i) const, value(int32_t i) const
//   int64_t timestamp(int32_t i) const                 milliseconds
//   int64_t header_count(int32_t i) const
//   void header(int32_t i, int64_t j, Piece& key, Piece& value) const
#pragma once
#include <algorithm>
#include <cstdint>

#include "batch_format.hpp"
#include "copy_bytes.hpp"
#include "varint.hpp"

namespace ringlog {

// Bytes to encode, or null. Lengths have 64 bits, because a column may claim more than a record can hold.
struct Piece {
    static constexpr int64_t kNull = -1;
    static constexpr int64_t kOutOfBounds = -2;  // the column's offsets lead out of its data

    const uint8_t* data = nullptr;
    int64_t length = kNull;
};

enum class EncodeError {
    kNone,
    kTooLarge,
    kTimestampRange,  // timestamps too far apart for their difference to fit 64 bits
    kColumnOffsets,
    kHeaderCount,
    kHeaderKeyNull,
    kSourceChanged,  // another thread changed the source between measuring and writing
};

struct Measured {
    EncodeError error = EncodeError::kNone;
    int32_t record = 0;  // where the error was met
    int32_t count = 0;   // records that were measured and are to be written
    int64_t records_bytes = 0;
    int64_t base_timestamp = -1;
    int64_t max_timestamp = -1;
};

namespace detail {

// One record of a source, fetched once per pass.
struct RecordPieces {
    int64_t timestamp_delta = 0;
    Piece key;
    Piece value;
    int64_t header_count = 0;
    int64_t body_bytes = 0;  // what the record's length says: everything behind the length itself
};

inline EncodeError add_sized(const Piece& piece, int64_t& bytes) noexcept {
    if (piece.length < Piece::kNull) return EncodeError::kColumnOffsets;
    if (piece.length > kUnfoldedBytesMax) return EncodeError::kTooLarge;
    bytes += static_cast<int64_t>(varint_size(piece.length)) + (piece.length > 0 ? piece.length : 0);
    return EncodeError::kNone;
}

template <class Source>
EncodeError add_headers(const Source& source, int32_t i, int64_t count, int64_t& bytes) noexcept {
    if (count < 0) return EncodeError::kColumnOffsets;
    if (count > kHeadersPerRecordMax) return EncodeError::kHeaderCount;
    for (int64_t j = 0; j < count; ++j) {
        Piece key;
        Piece value;
        source.header(i, j, key, value);
        if (key.length == Piece::kNull) return EncodeError::kHeaderKeyNull;
        EncodeError error = add_sized(key, bytes);
        if (error == EncodeError::kNone) error = add_sized(value, bytes);
        if (error != EncodeError::kNone) return error;
    }
    return EncodeError::kNone;
}

template <class Source>
[[gnu::always_inline]] inline EncodeError fetch(const Source& source, int32_t i, int64_t base_timestamp,
                                                RecordPieces& record) noexcept {
    if (__builtin_sub_overflow(source.timestamp(i), base_timestamp, &record.timestamp_delta)) {
        return EncodeError::kTimestampRange;
    }
    record.key = source.key(i);
    record.value = source.value(i);
    record.header_count = source.header_count(i);
    int64_t bytes = 1 + static_cast<int64_t>(varint_size(record.timestamp_delta) + varint_size(i) +
                                             varint_size(record.header_count));
    EncodeError error = add_sized(record.key, bytes);
    if (error == EncodeError::kNone) error = add_sized(record.value, bytes);
    if (error == EncodeError::kNone && record.header_count != 0) {
        error = add_headers(source, i, record.header_count, bytes);
    }
    record.body_bytes = bytes;
    return error;
}

inline uint8_t* write_sized(uint8_t* to, const Piece& piece) noexcept {
    to = write_varint(to, piece.length);
    if (piece.length <= 0) return to;
    copy_bytes(to, piece.data, static_cast<size_t>(piece.length));
    return to + piece.length;
}

// Bytes of a whole record, its length included.
inline int64_t bytes_of(const RecordPieces& record) noexcept {
    return static_cast<int64_t>(varint_size(record.body_bytes)) + record.body_bytes;
}

// Writes record `i`, which `fetch` has just measured, and returns the byte behind it; null when the source
// changed since. Writes bytes_of(record) bytes at most.
template <class Source>
[[gnu::always_inline]] inline uint8_t* write_record(const Source& source, int32_t i,
                                                    const RecordPieces& record, uint8_t* to) noexcept {
    const uint8_t* const record_end = to + bytes_of(record);
    to = write_varint(to, record.body_bytes);
    *to++ = 0;  // attributes
    to = write_varint(to, record.timestamp_delta);
    to = write_varint(to, i);
    to = write_sized(to, record.key);
    to = write_sized(to, record.value);
    to = write_varint(to, record.header_count);
    for (int64_t j = 0; j < record.header_count; ++j) {
        Piece key;
        Piece value;
        source.header(i, j, key, value);
        int64_t bytes = 0;
        if (add_sized(key, bytes) != EncodeError::kNone || add_sized(value, bytes) != EncodeError::kNone ||
            bytes > record_end - to) {
            return nullptr;
        }
        to = write_sized(to, key);
        to = write_sized(to, value);
    }
    return to == record_end ? to : nullptr;
}

}  // namespace detail

// Measures all records, or as many, at least one, as fit `bytes_target`.
template <class Source>
Measured measure_records(const Source& source, int64_t bytes_target = kUnfoldedBytesMax) noexcept {
    Measured measured;
    const int32_t count = source.count();
    if (count == 0) return measured;
    measured.base_timestamp = measured.max_timestamp = source.timestamp(0);
    detail::RecordPieces record;
    for (int32_t i = 0; i < count; ++i) {
        measured.error = detail::fetch(source, i, measured.base_timestamp, record);
        const int64_t bytes = detail::bytes_of(record);
        if (measured.error == EncodeError::kNone && bytes_target < kUnfoldedBytesMax && i > 0 &&
            measured.records_bytes + bytes > bytes_target) {
            return measured;
        }
        measured.records_bytes += bytes;
        if (measured.error == EncodeError::kNone && measured.records_bytes > kUnfoldedBytesMax) {
            measured.error = EncodeError::kTooLarge;
        }
        if (measured.error != EncodeError::kNone) {
            measured.record = i;
            return measured;
        }
        measured.max_timestamp = std::max(measured.max_timestamp, source.timestamp(i));
        measured.count = i + 1;
    }
    return measured;
}

// Fills [to, to + measured.records_bytes). Never writes outside, even when the source has changed since.
template <class Source>
EncodeError write_records(const Source& source, const Measured& measured, uint8_t* to) noexcept {
    const uint8_t* const end = to + measured.records_bytes;
    detail::RecordPieces record;
    for (int32_t i = 0; i < measured.count; ++i) {
        if (detail::fetch(source, i, measured.base_timestamp, record) != EncodeError::kNone ||
            detail::bytes_of(record) > end - to) {
            return EncodeError::kSourceChanged;
        }
        to = detail::write_record(source, i, record, to);
        if (to == nullptr) return EncodeError::kSourceChanged;
    }
    return to == end ? EncodeError::kNone : EncodeError::kSourceChanged;
}

}  // namespace ringlog
