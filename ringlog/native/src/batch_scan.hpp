// Walks a buffer of record batches, checking each as far as it is told to, and stops at the first fault.
#pragma once
#include <cstdint>
#include <optional>

#include "batch_format.hpp"
#include "bytes.hpp"
#include "fault.hpp"

namespace ringlog {

enum class Level {
    kHeaders,  // lengths, magic, plausible header fields
    kCrc,      // and the CRC
    kFull,     // and the structure of the records, where they are not compressed
};

struct ScanRules {
    Level level = Level::kFull;
    int64_t bytes_max = kBatchBytesMax;
    int64_t expected_offset = -1;  // of the first batch; -1: any, and nothing is asked of the batches' order
    bool dense = true;             // base offsets follow each other without a gap; otherwise they may skip
    int32_t min_epoch = -1;        // leader epochs do not fall below this, nor below an earlier batch's
    bool gapless = false;          // within a batch, as a producer makes it: one record for every offset
    std::optional<uint32_t> crc;   // of a batch that is all of the buffer, when it is known already
};

// The fault of a batch at this position.
inline Fault wrong_crc(int64_t batch_position) noexcept {
    return {"crc", batch_position + static_cast<int64_t>(at::kCrc), "not the CRC32C of the batch's bytes"};
}

// A forward cursor over the whole batches of a buffer. Trusts nothing that it reads.
class BatchCursor {
public:
    BatchCursor(Bytes data, const ScanRules& rules) noexcept
        : data_(data), rules_(rules), expected_offset_(rules.expected_offset), epoch_(rules.min_epoch) {}

    // Reads the next batch. False at the exact end of the buffer and at a fault; fault() tells which.
    bool next(BatchRow& row) noexcept;

    // The byte behind the last whole batch.
    int64_t position() const noexcept { return position_; }
    const Fault& fault() const noexcept { return fault_; }

private:
    bool read_header(BatchRow& row) noexcept;
    bool check_body(const BatchRow& row) noexcept;
    bool fail(const char* field, size_t offset_in_batch, const char* reason) noexcept;
    bool fail_incomplete() noexcept;

    Bytes data_;
    ScanRules rules_;
    int64_t expected_offset_;
    int32_t epoch_;
    int64_t position_ = 0;
    Fault fault_;
};

// The first byte at or behind `start` where a whole batch with a right CRC begins whose base offset is at
// least `min_offset`; -1 when there is none. Costs one pass over the bytes, whatever they claim to be.
int64_t find_batch(Bytes data, int64_t start, int64_t min_offset, int64_t bytes_max);

struct Stamp {
    int64_t base_offset;
    int32_t leader_epoch;
    bool append_time = false;
    int64_t append_time_ms = 0;
};

// Gives the batches of a buffer consecutive offsets and an epoch, in place. Returns the next offset, or -1
// with `fault` set; then no byte was changed. The caller has checked the batches; bounds are checked again.
int64_t stamp_batches(uint8_t* data, size_t size, const Stamp& stamp, Fault& fault) noexcept;

// Writes the CRC of a batch whose other bytes are final.
void seal_batch(uint8_t* batch, size_t size) noexcept;

struct ProducerStamp {
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t base_sequence;
};

// Gives a sealed batch of at least a header its producer's fields. Its CRC follows from the one that it has and from
// the few bytes that change: the records, which may be far from this core by now, are not read.
void stamp_producer(uint8_t* batch, size_t size, const ProducerStamp& stamp) noexcept;

}  // namespace ringlog
