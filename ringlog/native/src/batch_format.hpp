// The byte layout of a record batch v2 (all integers big-endian), and the row that describes one batch.
//
//    0  base_offset          i64   ┐ stamped by the broker: not under the CRC
//    8  batch_length         i32   │ bytes that follow this field
//   12  leader_epoch         i32   ┘
//   16  magic                i8      always 2
//   17  crc                  u32     CRC32C of everything from byte 21 on
//   21  attributes           i16     0-2 codec, 3 append time, 4 transactional, 5 control, 6 delete horizon
//   23  last_offset_delta    i32
//   27  base_timestamp       i64
//   35  max_timestamp        i64
//   43  producer_id          i64     -1: none
//   51  producer_epoch       i16     -1: none
//   53  base_sequence        i32     -1: none
//   57  record_count         i32
//   61  records              …       compressed as a whole when the codec says so
#pragma once
#include <cstddef>
#include <cstdint>

#include "bytes.hpp"

namespace ringlog {

namespace at {  // byte positions of the fields within a batch
constexpr size_t kBaseOffset = 0;
constexpr size_t kBatchLength = 8;
constexpr size_t kLeaderEpoch = 12;
constexpr size_t kMagic = 16;
constexpr size_t kCrc = 17;
constexpr size_t kAttributes = 21;
constexpr size_t kLastOffsetDelta = 23;
constexpr size_t kBaseTimestamp = 27;
constexpr size_t kMaxTimestamp = 35;
constexpr size_t kProducerId = 43;
constexpr size_t kProducerEpoch = 51;
constexpr size_t kBaseSequence = 53;
constexpr size_t kRecordCount = 57;
constexpr size_t kRecords = 61;
}  // namespace at

constexpr size_t kLengthPrefixBytes = at::kLeaderEpoch;  // what batch_length does not count
constexpr size_t kCrcBegin = at::kAttributes;
constexpr uint8_t kMagic2 = 2;

constexpr int16_t kCodecMask = 0x07;
constexpr int16_t kCodecMax = 4;
constexpr int16_t kAppendTimeBit = 1 << 3;
constexpr int16_t kTransactionalBit = 1 << 4;
constexpr int16_t kControlBit = 1 << 5;

// The bounds of ringlog/limits.py that native code needs; a test holds the two equal.
constexpr int64_t kBatchBytesMax = 32 << 20;
constexpr int32_t kRecordsPerBatchMax = 4 << 20;
constexpr int32_t kHeadersPerRecordMax = 1 << 10;
constexpr int64_t kUnfoldedBytesMax = 64 << 20;  // DECOMPRESSED_BYTES_MAX

// length, attributes, timestamp delta, offset delta, key length, value length, header count: a byte each
constexpr int64_t kRecordBytesMin = 7;

// One batch, as rows of the NumPy dtype BATCH_TABLE (ringlog/records/format.py) hold it.
struct BatchRow {
    int64_t position;  // byte where the batch starts in the buffer
    int64_t base_offset;
    int64_t last_offset;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int32_t length;  // of the whole batch, its first 12 bytes included
    int32_t leader_epoch;
    int32_t base_sequence;
    int32_t record_count;
    int16_t producer_epoch;
    int16_t attributes;
    uint32_t crc;

    int16_t codec() const noexcept { return attributes & kCodecMask; }
    bool append_time() const noexcept { return (attributes & kAppendTimeBit) != 0; }
    bool control() const noexcept { return (attributes & kControlBit) != 0; }
};
static_assert(sizeof(BatchRow) == 72, "BATCH_TABLE has rows of 72 bytes");

// Writes the fixed part of a batch; the CRC is left to seal_batch().
inline void write_header(uint8_t* batch, const BatchRow& row) noexcept {
    store_big(batch + at::kBaseOffset, row.base_offset);
    store_big(batch + at::kBatchLength, row.length - static_cast<int32_t>(kLengthPrefixBytes));
    store_big(batch + at::kLeaderEpoch, row.leader_epoch);
    batch[at::kMagic] = kMagic2;
    store_big(batch + at::kAttributes, row.attributes);
    store_big(batch + at::kLastOffsetDelta, static_cast<int32_t>(row.last_offset - row.base_offset));
    store_big(batch + at::kBaseTimestamp, row.base_timestamp);
    store_big(batch + at::kMaxTimestamp, row.max_timestamp);
    store_big(batch + at::kProducerId, row.producer_id);
    store_big(batch + at::kProducerEpoch, row.producer_epoch);
    store_big(batch + at::kBaseSequence, row.base_sequence);
    store_big(batch + at::kRecordCount, row.record_count);
}

}  // namespace ringlog
