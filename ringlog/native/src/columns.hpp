// Columns of bytes, of timestamps and of headers as the encoder reads them: Arrow's memory layout.
#pragma once
#include <cstdint>
#include <limits>

#include "record_encode.hpp"

namespace ringlog {

inline bool bit_is_set(const uint8_t* bitmap, int64_t i) noexcept {
    return (bitmap[i >> 3] >> (i & 7) & 1) != 0;
}

// Offsets of 32 or 64 bits; entry i and i + 1 bound element i.
struct OffsetColumn {
    const int32_t* narrow = nullptr;
    const int64_t* wide = nullptr;

    int64_t at(int64_t i) const noexcept { return narrow != nullptr ? narrow[i] : wide[i]; }
};

// Byte strings: by offsets, or all of one width, or all null. `first` is the column's own start.
struct ByteColumn {
    enum class Kind { kNull, kOffsets, kFixed };

    Kind kind = Kind::kNull;
    int64_t first = 0;
    const uint8_t* validity = nullptr;  // null: no element is null
    OffsetColumn offsets;
    int64_t width = 0;
    const uint8_t* data = nullptr;
    // Arrow does not tell the size of the data, so its offsets are trusted.
    int64_t data_bytes = std::numeric_limits<int64_t>::max();

    Piece at(int64_t i) const noexcept {
        i += first;
        if (kind == Kind::kNull || (validity != nullptr && !bit_is_set(validity, i))) return {};
        if (kind == Kind::kFixed) return {data + i * width, width};
        const int64_t begin = offsets.at(i);
        const int64_t end = offsets.at(i + 1);
        if (begin < 0 || end < begin || end > data_bytes) return {nullptr, Piece::kOutOfBounds};
        return {data + begin, end - begin};
    }
};

struct TimestampColumn {
    const int64_t* values = nullptr;  // null: `all` holds for every record
    int64_t all = 0;

    int64_t at(int64_t i) const noexcept { return values != nullptr ? values[i] : all; }
};

// A list of (key, value) per record.
struct HeaderColumn {
    bool present = false;
    int64_t first = 0;
    const uint8_t* validity = nullptr;
    OffsetColumn offsets;
    int64_t pairs = 0;
    const uint8_t* pair_validity = nullptr;
    int64_t pair_first = 0;
    ByteColumn keys;
    ByteColumn values;

    int64_t count(int64_t i) const noexcept {
        if (!present) return 0;
        i += first;
        if (validity != nullptr && !bit_is_set(validity, i)) return 0;
        const int64_t begin = offsets.at(i);
        const int64_t end = offsets.at(i + 1);
        return begin < 0 || end < begin || end > pairs ? -1 : end - begin;
    }

    void at(int64_t i, int64_t j, Piece& key, Piece& value) const noexcept {
        const int64_t pair = offsets.at(i + first) + j;
        if (pair < 0 || pair >= pairs) {
            key.length = Piece::kOutOfBounds;
            return;
        }
        // A null pair has a null key, which the encoder refuses.
        if (pair_validity != nullptr && !bit_is_set(pair_validity, pair + pair_first)) return;
        key = keys.at(pair);
        value = values.at(pair);
    }
};

// The two columns that most batches are made of, known to the compiler: nothing is asked per record.
struct NullColumn {
    static constexpr Piece at(int64_t) noexcept { return {}; }
};

struct NarrowColumn {
    explicit NarrowColumn(const ByteColumn& column) noexcept
        : offsets(column.offsets.narrow + column.first), data(column.data), data_bytes(column.data_bytes) {}

    static bool fits(const ByteColumn& column) noexcept {
        return column.kind == ByteColumn::Kind::kOffsets && column.offsets.narrow != nullptr &&
               column.validity == nullptr;
    }

    Piece at(int64_t i) const noexcept {
        const int64_t begin = offsets[i];
        const int64_t end = offsets[i + 1];
        if (begin < 0 || end < begin || end > data_bytes) return {nullptr, Piece::kOutOfBounds};
        return {data + begin, end - begin};
    }

    const int32_t* offsets;
    const uint8_t* data;
    int64_t data_bytes;
};

struct NoHeaders {
    static constexpr int64_t count(int64_t) noexcept { return 0; }
    static constexpr void at(int64_t, int64_t, Piece&, Piece&) noexcept {}
};

// Which rows of the columns are the records: a range, or those that a list names.
struct RowRange {
    int64_t start;

    int64_t operator()(int32_t i) const noexcept { return start + i; }
};

struct RowList {
    const int64_t* rows;

    int64_t operator()(int32_t i) const noexcept { return rows[i]; }
};

// Rows of columns as one source of records.
template <class Keys, class Values, class Headers, class Rows>
struct ColumnSource {
    Keys keys;
    Values values;
    Headers headers;
    TimestampColumn timestamps;
    Rows row;
    int32_t records;

    int32_t count() const noexcept { return records; }
    Piece key(int32_t i) const noexcept { return keys.at(row(i)); }
    Piece value(int32_t i) const noexcept { return values.at(row(i)); }
    int64_t timestamp(int32_t i) const noexcept { return timestamps.at(row(i)); }
    int64_t header_count(int32_t i) const noexcept { return headers.count(row(i)); }
    void header(int32_t i, int64_t j, Piece& key, Piece& value) const noexcept {
        headers.at(row(i), j, key, value);
    }
};

}  // namespace ringlog
