// Reads the columns of records, and says what is wrong with them.
#include "py_record_columns.hpp"

#include <algorithm>
#include <string>

namespace nb = nanobind;

namespace ringlog {
namespace {

// Whether all row numbers lie within columns of `length`. No early way out: so the compiler can use wide registers.
bool rows_fit(const int64_t* rows, int64_t count, int64_t length) noexcept {
    int64_t lowest = 0;
    int64_t highest = 0;
    for (int64_t i = 0; i < count; ++i) {
        lowest = std::min(lowest, rows[i]);
        highest = std::max(highest, rows[i]);
    }
    return lowest >= 0 && highest < length;
}

}  // namespace

RecordColumns::RecordColumns(BorrowedColumns& borrowed, nb::handle value_column, nb::handle key_column,
                             nb::handle times, nb::handle header_column, nb::handle row_numbers) {
    values = borrowed.bytes(value_column, "values", length_);
    if (!key_column.is_none()) {
        int64_t key_count = 0;
        keys = borrowed.bytes(key_column, "keys", key_count);
        if (key_count != length_) throw nb::value_error("keys: one for each value is needed");
    }
    timestamps = borrowed.timestamps(times, length_);
    if (!header_column.is_none()) headers = borrowed.headers(header_column, length_);
    count = length_;
    if (!row_numbers.is_none()) {
        row_buffer_.emplace(row_numbers);
        rows = reinterpret_cast<const int64_t*>(row_buffer_->data());
        count = static_cast<int64_t>(row_buffer_->size() / sizeof(int64_t));
    }
}

void RecordColumns::check_range(int64_t start, int64_t stop) const {
    if (start < 0 || start >= stop || stop > count) {
        throw nb::value_error("the range must hold at least one record and lie within the columns");
    }
}

void RecordColumns::check_rows(int64_t start, int64_t stop) const {
    if (rows != nullptr && !rows_fit(rows + start, stop - start, length_)) {
        throw nb::value_error("rows: a number outside the columns");
    }
}

void raise_encode_error(EncodeError error, int32_t record) {
    const char* reason = "";
    switch (error) {
        case EncodeError::kTooLarge: {
            const nb::object type = nb::module_::import_("ringlog.errors").attr("BatchTooLarge");
            const auto text = "the records up to number " + std::to_string(record) + " take more than " +
                              std::to_string(kUnfoldedBytesMax) + " bytes; cut the columns into more batches";
            PyErr_SetString(type.ptr(), text.c_str());
            throw nb::python_error();
        }
        case EncodeError::kTimestampRange: reason = "timestamps are too far apart"; break;
        case EncodeError::kColumnOffsets:
            reason = "offsets must not decrease and must end within the data";
            break;
        case EncodeError::kHeaderCount: reason = "more headers than a record may have"; break;
        case EncodeError::kHeaderKeyNull: reason = "a header's key must not be null"; break;
        case EncodeError::kSourceChanged: reason = "the columns changed while they were encoded"; break;
        case EncodeError::kNone: break;
    }
    throw nb::value_error(("record " + std::to_string(record) + ": " + reason).c_str());
}

}  // namespace ringlog
