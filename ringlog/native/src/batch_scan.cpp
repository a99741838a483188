// The checks of a batch: header fields in the order of their bytes, then the CRC, then the records.
#include "batch_scan.hpp"

#include <limits>

#include "crc32c.hpp"
#include "record_parse.hpp"

namespace ringlog {

bool BatchCursor::fail(const char* field, size_t offset_in_batch, const char* reason) noexcept {
    fault_ = {field, position_ + static_cast<int64_t>(offset_in_batch), reason};
    return false;
}

bool BatchCursor::fail_incomplete() noexcept {
    fail("batch_length", at::kBatchLength, "the buffer ends before the batch does");
    fault_.incomplete = true;
    return false;
}

bool BatchCursor::next(BatchRow& row) noexcept {
    if (fault_ || static_cast<size_t>(position_) == data_.size) return false;
    if (!read_header(row) || !check_body(row)) return false;
    position_ += row.length;
    if (expected_offset_ >= 0) {
        expected_offset_ = row.last_offset + 1;
        epoch_ = row.leader_epoch;
    }
    return true;
}

// Each field is judged as soon as all of it is there, so that a batch which the buffer cuts off is told
// from bytes that could never become one.
bool BatchCursor::read_header(BatchRow& row) noexcept {
    const uint8_t* const batch = data_.data + position_;
    const size_t available = data_.size - static_cast<size_t>(position_);
    row.position = position_;

    if (available < at::kBatchLength) return fail_incomplete();
    row.base_offset = load_big<int64_t>(batch + at::kBaseOffset);
    if (row.base_offset < 0) return fail("base_offset", at::kBaseOffset, "negative");
    if (expected_offset_ >= 0) {
        if (row.base_offset < expected_offset_)
            return fail("base_offset", at::kBaseOffset, "below the expected one");
        if (rules_.dense && row.base_offset != expected_offset_) {
            return fail("base_offset", at::kBaseOffset, "above the expected one");
        }
    }

    if (available < at::kLeaderEpoch) return fail_incomplete();
    const int64_t length = int64_t{load_big<int32_t>(batch + at::kBatchLength)} + int64_t{kLengthPrefixBytes};
    if (length < int64_t{at::kRecords})
        return fail("batch_length", at::kBatchLength, "smaller than a batch's header");
    if (length > rules_.bytes_max)
        return fail("batch_length", at::kBatchLength, "larger than a batch may be");
    row.length = static_cast<int32_t>(length);

    if (available < at::kMagic) return fail_incomplete();
    row.leader_epoch = load_big<int32_t>(batch + at::kLeaderEpoch);
    if (row.leader_epoch < -1) return fail("leader_epoch", at::kLeaderEpoch, "negative, and not -1 for none");
    if (expected_offset_ >= 0 && row.leader_epoch < epoch_) {
        return fail("leader_epoch", at::kLeaderEpoch, "below that of what came before");
    }

    if (available < at::kCrc) return fail_incomplete();
    if (batch[at::kMagic] != kMagic2) return fail("magic", at::kMagic, "not 2");

    if (available < at::kLastOffsetDelta) return fail_incomplete();
    row.crc = load_big<uint32_t>(batch + at::kCrc);
    row.attributes = load_big<int16_t>(batch + at::kAttributes);
    if (row.codec() > kCodecMax) return fail("attributes", at::kAttributes, "unknown compression codec");

    if (available < at::kBaseTimestamp) return fail_incomplete();
    const int32_t last_offset_delta = load_big<int32_t>(batch + at::kLastOffsetDelta);
    if (last_offset_delta < 0) return fail("last_offset_delta", at::kLastOffsetDelta, "negative");
    // One below the largest, so that the offset behind the batch exists too.
    if (row.base_offset > std::numeric_limits<int64_t>::max() - 1 - last_offset_delta) {
        return fail("last_offset_delta", at::kLastOffsetDelta, "the last offset does not fit 63 bits");
    }
    row.last_offset = row.base_offset + last_offset_delta;

    if (available < at::kProducerEpoch) return fail_incomplete();
    row.base_timestamp = load_big<int64_t>(batch + at::kBaseTimestamp);
    row.max_timestamp = load_big<int64_t>(batch + at::kMaxTimestamp);
    row.producer_id = load_big<int64_t>(batch + at::kProducerId);
    if (row.producer_id < -1) return fail("producer_id", at::kProducerId, "negative, and not -1 for none");

    if (available < at::kBaseSequence) return fail_incomplete();
    row.producer_epoch = load_big<int16_t>(batch + at::kProducerEpoch);
    if (row.producer_epoch < -1)
        return fail("producer_epoch", at::kProducerEpoch, "negative, and not -1 for none");

    if (available < at::kRecordCount) return fail_incomplete();
    row.base_sequence = load_big<int32_t>(batch + at::kBaseSequence);
    if (row.base_sequence < -1)
        return fail("base_sequence", at::kBaseSequence, "negative, and not -1 for none");

    if (available < at::kRecords) return fail_incomplete();
    row.record_count = load_big<int32_t>(batch + at::kRecordCount);
    if (row.record_count < 0) return fail("record_count", at::kRecordCount, "negative");
    if (row.record_count > kRecordsPerBatchMax) {
        return fail("record_count", at::kRecordCount, "more than a batch may have");
    }
    if (row.record_count > int64_t{last_offset_delta} + 1) {
        return fail("record_count", at::kRecordCount, "more records than offsets");
    }
    if (rules_.gapless && row.record_count != int64_t{last_offset_delta} + 1) {
        return fail("record_count", at::kRecordCount, "fewer records than offsets");
    }
    const int64_t records_bytes = length - int64_t{at::kRecords};
    if (row.codec() == 0 && row.record_count * kRecordBytesMin > records_bytes) {
        return fail("record_count", at::kRecordCount, "more records than the batch has room for");
    }

    if (available < static_cast<size_t>(length)) return fail_incomplete();
    return true;
}

bool BatchCursor::check_body(const BatchRow& row) noexcept {
    if (rules_.level == Level::kHeaders) return true;
    const uint8_t* const batch = data_.data + position_;
    const size_t size = static_cast<size_t>(row.length);
    const bool is_known = rules_.crc.has_value() && size == data_.size;
    if ((is_known ? *rules_.crc : crc32c(batch + kCrcBegin, size - kCrcBegin)) != row.crc) {
        fault_ = wrong_crc(position_);
        return false;
    }
    if (rules_.level == Level::kCrc || row.codec() != 0) return true;
    RecordParser parser({batch + at::kRecords, size - at::kRecords}, row, rules_.gapless);
    parser.visit_all([](const auto&) {});
    if (!parser.fault()) return true;
    fault_ = parser.fault();
    fault_.position += position_ + static_cast<int64_t>(at::kRecords);
    return false;
}

}  // namespace ringlog
