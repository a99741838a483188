// Encoding columns whose offsets and bitmaps are any bytes, as a careless caller may hand them in.
//
// Invariant: nothing outside the columns is read. What is refused is refused while measuring; what was
// measured is written into exactly so many bytes, and the batch passes every check that there is.
#include <algorithm>
#include <cstring>
#include <vector>

#include "batch_scan.hpp"
#include "columns.hpp"
#include "require.hpp"

using namespace ringlog;

namespace {

template <class Source>
void encode(const Source& source, int64_t bytes_target = kUnfoldedBytesMax) {
    const Measured measured = measure_records(source, bytes_target);
    if (measured.error != EncodeError::kNone) return;
    REQUIRE(measured.count > 0);
    REQUIRE(measured.count == 1 || measured.records_bytes <= bytes_target);
    REQUIRE(measured.count == source.count() || bytes_target < kUnfoldedBytesMax);
    std::vector<uint8_t> batch(at::kRecords + static_cast<size_t>(measured.records_bytes));
    REQUIRE(write_records(source, measured, batch.data() + at::kRecords) == EncodeError::kNone);
    BatchRow row{};
    row.last_offset = measured.count - 1;
    row.base_timestamp = measured.base_timestamp;
    row.max_timestamp = measured.max_timestamp;
    row.producer_id = row.producer_epoch = -1;
    row.base_sequence = -1;
    row.record_count = measured.count;
    row.length = static_cast<int32_t>(batch.size());
    write_header(batch.data(), row);
    seal_batch(batch.data(), batch.size());
    ScanRules rules;
    rules.gapless = true;
    rules.expected_offset = 0;
    BatchCursor cursor({batch.data(), batch.size()}, rules);
    REQUIRE(cursor.next(row));
    REQUIRE(row.record_count == measured.count);
    REQUIRE(!cursor.next(row) && !cursor.fault());
}

}  // namespace

// The input is read as: a byte that says how many records, a bitmap, 64-bit timestamps, 32-bit offsets, data.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const size_t records = 1 + data[0] % 16;
    const size_t fixed = 1 + 2 + records * 8 + (records + 1) * 4;
    if (size < fixed) return 0;
    const std::vector<uint8_t> bitmap(data + 1, data + 3);
    std::vector<int64_t> timestamps(records);
    std::memcpy(timestamps.data(), data + 3, records * 8);
    std::vector<int32_t> narrow(records + 1);
    std::memcpy(narrow.data(), data + 3 + records * 8, (records + 1) * 4);
    const std::vector<uint8_t> bytes(data + fixed, data + size);
    // Mutated headers rarely make good offsets: half of the time they are folded into the data's range.
    if (data[0] >= 128) {
        for (int32_t& offset : narrow) offset = offset % static_cast<int32_t>(bytes.size() + 1);
        std::sort(narrow.begin(), narrow.end());
    }
    const std::vector<int64_t> wide(narrow.begin(), narrow.end());

    ByteColumn column;
    column.kind = ByteColumn::Kind::kOffsets;
    column.offsets.narrow = narrow.data();
    column.data = bytes.data();
    column.data_bytes = static_cast<int64_t>(bytes.size());
    const TimestampColumn times{timestamps.data(), 0};
    const auto count = static_cast<int32_t>(records);
    encode(ColumnSource{NullColumn{}, NarrowColumn(column), NoHeaders{}, times, RowRange{0}, count});
    encode(ColumnSource{NarrowColumn(column), NarrowColumn(column), NoHeaders{}, times, RowRange{0}, count});
    ByteColumn nullable = column;
    nullable.validity = bitmap.data();
    ByteColumn large = nullable;
    large.offsets = {nullptr, wide.data()};
    HeaderColumn headers;
    headers.present = true;
    headers.offsets.narrow = narrow.data();
    headers.pairs = static_cast<int64_t>(records);
    headers.values = nullable;
    // Keys of headers are strings: Arrow vouches for UTF-8, so here they are of one ASCII letter.
    const std::vector<uint8_t> letters(records, 'k');
    headers.keys.kind = ByteColumn::Kind::kFixed;
    headers.keys.width = 1;
    headers.keys.data = letters.data();
    encode(ColumnSource{nullable, large, headers, TimestampColumn{}, RowRange{0}, count});
    // Any rows of the columns, in any order, and only as many as fit.
    std::vector<int64_t> rows(records);
    for (size_t i = 0; i < records; ++i) rows[i] = data[fixed - 1 - i] % count;
    const ColumnSource chosen{nullable, large, headers, times, RowList{rows.data()}, count};
    encode(chosen);
    encode(chosen, data[1]);
    return 0;
}
