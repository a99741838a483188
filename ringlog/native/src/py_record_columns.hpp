// The columns that records are made of, borrowed from Python, and the rows of them that are meant.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "columns.hpp"
#include "py_buffer.hpp"
#include "py_columns.hpp"

namespace ringlog {

struct RecordColumns {
    // Columns of equal length, `keys`, `headers` and `rows` perhaps None. ValueError for what cannot be read.
    RecordColumns(BorrowedColumns& borrowed, nanobind::handle values, nanobind::handle keys,
                  nanobind::handle timestamps, nanobind::handle headers, nanobind::handle rows);

    // A range of records: rows of the columns, or places in `rows`.
    void check_range(int64_t start, int64_t stop) const;
    // The row numbers in a range lie within the columns.
    void check_rows(int64_t start, int64_t stop) const;

    ByteColumn values;
    ByteColumn keys;
    TimestampColumn timestamps;
    HeaderColumn headers;
    const int64_t* rows = nullptr;  // null: every row, in its order
    int64_t count = 0;              // of records: rows, or entries of `rows`

private:
    int64_t length_ = 0;
    std::optional<PyBuffer> row_buffer_;
};

// Raises what an encoder found, with the number of the record.
[[noreturn]] void raise_encode_error(EncodeError error, int32_t record);

}  // namespace ringlog
