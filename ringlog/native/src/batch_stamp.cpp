// Stamps batches in place: offset and epoch lie outside the CRC; append time and a producer's fields lie inside and
// renew it.
#include <limits>

#include "batch_scan.hpp"
#include "crc32c.hpp"

namespace ringlog {

void seal_batch(uint8_t* batch, size_t size) noexcept {
    store_big(batch + at::kCrc, crc32c(batch + kCrcBegin, size - kCrcBegin));
}

void stamp_producer(uint8_t* batch, size_t size, const ProducerStamp& stamp) noexcept {
    constexpr size_t kHeadSize = at::kRecords - kCrcBegin;
    const uint32_t before = crc32c(batch + kCrcBegin, kHeadSize);
    store_big(batch + at::kProducerId, stamp.producer_id);
    store_big(batch + at::kProducerEpoch, stamp.producer_epoch);
    store_big(batch + at::kBaseSequence, stamp.base_sequence);
    const uint32_t change = before ^ crc32c(batch + kCrcBegin, kHeadSize);
    const auto crc = load_big<uint32_t>(batch + at::kCrc);
    store_big(batch + at::kCrc, crc32c_of_suffix(change, crc, size - at::kRecords));
}

int64_t stamp_batches(uint8_t* data, size_t size, const Stamp& stamp, Fault& fault) noexcept {
    ScanRules rules;
    rules.level = Level::kHeaders;
    BatchRow row;

    int64_t next_offset = stamp.base_offset;
    BatchCursor check({data, size}, rules);
    while (check.next(row)) {
        const int64_t offsets = row.last_offset - row.base_offset + 1;
        if (next_offset > std::numeric_limits<int64_t>::max() - 1 - offsets) {
            fault = {"base_offset", row.position, "the stamped offsets do not fit 63 bits"};
            return -1;
        }
        next_offset += offsets;
    }
    if (check.fault()) {
        fault = check.fault();
        return -1;
    }

    // Lengths are read and checked again: the memory may be shared, and must not lead out of the buffer.
    next_offset = stamp.base_offset;
    BatchCursor apply({data, size}, rules);
    while (apply.next(row)) {
        uint8_t* const batch = data + row.position;
        store_big(batch + at::kBaseOffset, next_offset);
        store_big(batch + at::kLeaderEpoch, stamp.leader_epoch);
        if (stamp.append_time) {
            store_big(batch + at::kAttributes, static_cast<int16_t>(row.attributes | kAppendTimeBit));
            store_big(batch + at::kMaxTimestamp, stamp.append_time_ms);
            seal_batch(batch, static_cast<size_t>(row.length));
        }
        next_offset += row.last_offset - row.base_offset + 1;
    }
    return next_offset;
}

}  // namespace ringlog
