// Checks one frame where it lies and describes it in a row. A bad frame is a row with a status, never an end.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "batch_copy.hpp"
#include "batch_scan.hpp"
#include "drain_layout.hpp"
#include "frame_layout.hpp"
#include "ring_reader.hpp"

namespace ringlog {

// Sequences run from 0 to 2^31 - 1 and start again at 0.
inline int32_t sequence_after(int32_t sequence, int32_t records) noexcept {
    const auto sum = static_cast<uint32_t>(sequence) + static_cast<uint32_t>(records);
    return static_cast<int32_t>(sum & 0x7fffffff);
}

inline DrainRow row_without_batches() noexcept {
    DrainRow row{};
    row.producer_id = row.max_timestamp = -1;
    row.producer_epoch = -1;
    row.base_sequence = row.last_sequence = -1;
    return row;
}

inline DrainRow refuse(DrainRow row, DrainStatus status, size_t fault_position) noexcept {
    row.status = static_cast<uint16_t>(status);
    row.fault_position = static_cast<uint32_t>(fault_position);
    return row;
}

// Fills in what the batches of a produce frame say. `crc`: that of a body that is one batch, if it is known.
inline DrainRow check_batches(DrainRow row, Bytes body, std::optional<uint32_t> crc = {}) noexcept {
    if (body.size == 0) return refuse(row, DrainStatus::kNoBatch, sizeof(FrameHeader));
    ScanRules rules;
    rules.gapless = true;  // a producer's batch has a record for each of its offsets
    rules.crc = crc;
    BatchCursor cursor(body, rules);
    BatchRow batch;
    while (cursor.next(batch)) {
        const auto position = sizeof(FrameHeader) + static_cast<size_t>(batch.position);
        const bool sequenced = batch.base_sequence >= 0;
        if (row.batch_count == 0) {
            row.producer_id = batch.producer_id;
            row.producer_epoch = batch.producer_epoch;
            row.base_sequence = batch.base_sequence;
            row.max_timestamp = batch.max_timestamp;
        } else if (batch.producer_id != row.producer_id || batch.producer_epoch != row.producer_epoch) {
            return refuse(row, DrainStatus::kMixedProducers, position + at::kProducerId);
        } else if (batch.base_sequence != (row.last_sequence < 0 ? -1 : sequence_after(row.last_sequence, 1))) {
            return refuse(row, DrainStatus::kMixedProducers, position + at::kBaseSequence);
        }
        row.last_sequence = sequenced ? sequence_after(batch.base_sequence, batch.record_count - 1) : -1;
        row.max_timestamp = std::max(row.max_timestamp, batch.max_timestamp);
        row.attributes_any |= static_cast<uint16_t>(batch.attributes);
        row.record_count += static_cast<uint32_t>(batch.record_count);
        ++row.batch_count;
    }
    if (!cursor.fault()) return row;
    return refuse(row, DrainStatus::kBadBatch, sizeof(FrameHeader) + static_cast<size_t>(cursor.fault().position));
}

inline DrainRow describe_frame(const RingMessage& message) noexcept {
    DrainRow row = row_without_batches();
    row.kind = message.kind;

    FrameHeader header;
    if (message.body.size() < sizeof header) {
        row.partition = kNoPartition;
        row.body_position = message.offset;
        row.body_bytes = static_cast<uint32_t>(message.body.size());
        return refuse(row, DrainStatus::kFrameShort, message.body.size());
    }
    // Copied once: whoever scribbles over it later cannot change what was checked.
    std::memcpy(&header, message.body.data(), sizeof header);
    row.version = header.version;
    row.api_key = header.api_key;
    row.flags = header.flags;
    row.partition = header.partition;
    row.correlation = header.correlation;
    row.session = header.session;
    row.deadline_ms = header.deadline_ms;
    row.body_position = message.offset + sizeof header;
    row.body_bytes = static_cast<uint32_t>(message.body.size() - sizeof header);

    if (header.version != kFrameVersion) {
        return refuse(row, DrainStatus::kFrameVersion, offsetof(FrameHeader, version));
    }
    if (header.body_bytes != row.body_bytes) {
        return refuse(row, DrainStatus::kFrameBodyBytes, offsetof(FrameHeader, body_bytes));
    }
    if (header.api_key != kApiProduce || header.flags & kFlagNear) return row;
    const auto* body = reinterpret_cast<const uint8_t*>(message.body.data()) + sizeof header;
    return check_batches(row, {body, row.body_bytes});
}

// The bytes that a described frame asks its reader to copy from elsewhere.
inline uint64_t named_bytes(const DrainRow& row, const RingMessage& message) noexcept {
    uint32_t bytes = 0;
    constexpr size_t kAt = sizeof(FrameHeader) + kNearBytesAt;
    if (row.status != 0 || row.api_key != kApiProduce || !(row.flags & kFlagNear)) return 0;
    if (message.body.size() < kAt + sizeof bytes) return 0;
    std::memcpy(&bytes, message.body.data() + kAt, sizeof bytes);
    return bytes;
}

// Copies the batches of a client's memory, which may change at any time, and describes the copy.
inline DrainRow take_batches(uint8_t* into, Bytes from) noexcept {
    const std::span<uint8_t> room{into, from.size};
    Rooms rooms({&room, 1});
    const uint32_t crc = copy_batch(rooms, from);
    DrainRow row = row_without_batches();
    row.body_bytes = static_cast<uint32_t>(from.size);
    return check_batches(row, {into, from.size}, crc);
}

}  // namespace ringlog
