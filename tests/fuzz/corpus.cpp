// A dozen buffers: one batch or several, with and without keys, nulls, headers, gaps, records.
#include "corpus.hpp"

#include <algorithm>
#include <string>

#include "batch_scan.hpp"
#include "record_encode.hpp"

namespace ringlog::fuzz {
namespace {

// Records by rule: record i has a value of i · `step` bytes, and keys and headers where the shape says so.
struct Shape {
    int32_t records;
    int64_t step;
    bool keys;
    int64_t headers;
    int64_t timestamp_step;

    static constexpr const char* kText =
        "the quick brown fox jumps over the lazy dog, again and again and again";
    static const uint8_t* text() { return reinterpret_cast<const uint8_t*>(kText); }
    static constexpr int64_t kTextBytes = 64;

    int32_t count() const { return records; }
    Piece key(int32_t i) const { return keys && i % 3 != 0 ? Piece{text(), i % 5} : Piece{}; }
    Piece value(int32_t i) const {
        if (i % 7 == 6) return {};
        return {text(), std::min<int64_t>(i * step, kTextBytes)};
    }
    int64_t timestamp(int32_t i) const { return 1'700'000'000'000 + (i % 4 - 1) * timestamp_step; }
    int64_t header_count(int32_t i) const { return i % 2 == 0 ? headers : 0; }
    void header(int32_t, int64_t j, Piece& key, Piece& value) const {
        key = {text(), j % 4};
        value = j % 2 == 0 ? Piece{text(), j} : Piece{};
    }
};

void append_batch(Input& to, const Shape& shape, int64_t base_offset, int16_t attributes,
                  int32_t spare_offsets) {
    const Measured measured = measure_records(shape);
    BatchRow row{};
    row.base_offset = base_offset;
    row.last_offset = base_offset + std::max(shape.records - 1, 0) + spare_offsets;
    row.base_timestamp = measured.base_timestamp;
    row.max_timestamp = measured.max_timestamp;
    row.producer_id = attributes == 0 ? -1 : 4711;
    row.length = static_cast<int32_t>(int64_t{at::kRecords} + measured.records_bytes);
    row.base_sequence = row.producer_id < 0 ? -1 : 3;
    row.record_count = shape.records;
    row.producer_epoch = row.producer_id < 0 ? int16_t{-1} : int16_t{2};
    row.attributes = attributes;
    Input batch(static_cast<size_t>(row.length));
    write_header(batch.data(), row);
    write_records(shape, measured, batch.data() + at::kRecords);
    seal_batch(batch.data(), batch.size());
    to.insert(to.end(), batch.begin(), batch.end());
}

}  // namespace

std::vector<Input> make_corpus() {
    const Shape shapes[] = {
        {0, 0, false, 0, 0},
        {1, 5, false, 0, 0},
        {1, 5, true, 1, 0},
        {3, 20, true, 0, 1},
        {9, 1, true, 3, 70},
        {80, 1, false, 0, 0},
        {8, 64, true, 9, int64_t{1} << 40},
    };
    std::vector<Input> corpus;
    for (const Shape& shape : shapes) {
        append_batch(corpus.emplace_back(), shape, 0, 0, shape.records == 0 ? 4 : 0);
    }
    append_batch(corpus.emplace_back(), shapes[3], 7, kAppendTimeBit | kTransactionalBit, 0);
    append_batch(corpus.emplace_back(), shapes[1], 7, kControlBit | kTransactionalBit, 0);
    append_batch(corpus.emplace_back(), shapes[3], 7, 3, 0);  // says that it is compressed
    Input& several = corpus.emplace_back();
    append_batch(several, shapes[1], 0, 0, 2);
    append_batch(several, shapes[0], 3, 0, 1);
    append_batch(several, shapes[4], 5, kTransactionalBit, 0);
    Input& behind_zeros = corpus.emplace_back(100, uint8_t{0});
    append_batch(behind_zeros, shapes[2], 3, 0, 0);
    corpus.emplace_back();
    return corpus;
}

void reseal(Input& data) {
    size_t begin = 0;
    while (data.size() - begin >= at::kRecords) {
        uint8_t* const batch = data.data() + begin;
        size_t size = static_cast<size_t>(load_big<uint32_t>(batch + at::kBatchLength)) + kLengthPrefixBytes;
        if (size < at::kRecords || size > data.size() - begin) {
            size = data.size() - begin;  // whatever is left becomes the last batch
            store_big(batch + at::kBatchLength, static_cast<int32_t>(size - kLengthPrefixBytes));
        }
        seal_batch(batch, size);
        begin += size;
    }
}

}  // namespace ringlog::fuzz
