// Parses the records of one batch, checking every length against the bytes that are there.
//
//   length            varint   bytes that follow
//   attributes        i8       unused
//   timestamp_delta   varlong  from base_timestamp
//   offset_delta      varint   from base_offset
//   key_length        varint   -1: null          key
//   value_length      varint   -1: null          value
//   header_count      varint
//     key_length      varint   never null        key, UTF-8
//     value_length    varint   -1: null          value
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>

#include "batch_format.hpp"
#include "bytes.hpp"
#include "fault.hpp"
#include "record.hpp"
#include "record_plain.hpp"
#include "utf8.hpp"
#include "varint.hpp"

namespace ringlog {

class RecordParser {
public:
    // `records` are the bytes behind the batch's header, unfolded when the batch is compressed.
    RecordParser(Bytes records, const BatchRow& row, bool gapless) noexcept
        : begin_(records.data),
          at_(records.data),
          end_(records.data + records.size),
          base_timestamp_(row.base_timestamp),
          last_offset_delta_(static_cast<int32_t>(row.last_offset - row.base_offset)),
          remaining_(row.record_count),
          gapless_(gapless) {}

    // Calls visit(record) with each record that is left, a PlainRecord or a Record, until the batch ends or a
    // fault is met.
    template <class Visit>
    [[gnu::always_inline]] void visit_all(Visit&& visit) noexcept {
        for (Record record;;) {
            visit_plain(visit);
            // Where one record has headers, the next likely has too, and is not plain either.
            do {
                if (!next(record)) return;
                visit(static_cast<const Record&>(record));
            } while (record.header_count != 0);
        }
    }

    // Parses the next record. False at the end of the batch and at a fault; fault() tells which.
    [[gnu::noinline]] bool next(Record& record) noexcept {
        if (remaining_ == 0) {
            if (at_ != end_) fail("records", at_, "bytes are left behind the last record");
            return false;
        }
        --remaining_;
        const uint8_t* const start = at_;
        const uint8_t* at = at_;
        record.begin = start;
        int32_t length = 0;
        if (!varint("record_length", at, end_, length)) return false;
        if (length < 0) return fail("record_length", start, "negative");
        if (length > end_ - at) return fail("record_length", start, "reaches beyond the batch");
        const uint8_t* const record_end = at + length;
        if (at == record_end) return fail("record_attributes", at, "the record ends before it");
        ++at;

        const uint8_t* field = at;
        if (!varint("timestamp_delta", at, record_end, record.timestamp_delta)) return false;
        int64_t timestamp = 0;
        if (__builtin_add_overflow(base_timestamp_, record.timestamp_delta, &timestamp)) {
            return fail("timestamp_delta", field, "the timestamp does not fit 64 bits");
        }
        field = at;
        if (!varint("offset_delta", at, record_end, record.offset_delta)) return false;
        if (record.offset_delta <= offset_delta_) {
            return fail("offset_delta", field, offset_delta_ < 0 ? "negative" : "not above the one before");
        }
        if (gapless_ && record.offset_delta != offset_delta_ + 1) {
            return fail("offset_delta", field, "leaves a gap");
        }
        if (record.offset_delta > last_offset_delta_) {
            return fail("offset_delta", field, "above last_offset_delta");
        }
        offset_delta_ = record.offset_delta;

        if (!sized("key_length", at, record_end, record.key)) return false;
        if (!sized("value_length", at, record_end, record.value)) return false;
        field = at;
        if (!varint("header_count", at, record_end, record.header_count)) return false;
        record.headers = at;
        if (record.header_count != 0) {
            at = skip_headers(field, at, record_end, record.header_count);
            if (at == nullptr) return false;
        }
        if (at != record_end) return fail("record_length", start, "the record does not fill it");
        at_ = at;
        return true;
    }

    const Fault& fault() const noexcept { return fault_; }  // position: within `records`

    // Where the next record begins.
    int64_t position() const noexcept { return at_ - begin_; }

private:
    // Parses records up to the first that is not plain. Where it stands is kept in local variables, and so in
    // registers: from record to record, everything waits for the place where the next one begins.
    template <class Visit>
    [[gnu::always_inline]] void visit_plain(Visit& visit) noexcept {
        if (!plain_timestamps_fit()) return;
        const uint8_t* at = at_;
        const uint8_t* const end = end_;
        int32_t remaining = remaining_;
        int32_t offset_delta = offset_delta_;
        for (PlainRecord record; remaining > 0; --remaining) {
            const uint8_t* const behind = read_plain(at, end, record);
            if (behind == nullptr || !follows(record.offset_delta, offset_delta)) break;
            visit(static_cast<const PlainRecord&>(record));
            offset_delta = record.offset_delta;
            at = behind;
        }
        at_ = at;
        remaining_ = remaining;
        offset_delta_ = offset_delta;
    }

    bool follows(int32_t offset_delta, int32_t before) const noexcept {
        return offset_delta > before && offset_delta <= last_offset_delta_ &&
               (!gapless_ || offset_delta == before + 1);
    }

    bool plain_timestamps_fit() const noexcept {
        constexpr int64_t kMax = std::numeric_limits<int64_t>::max() - kPlainDeltaEnd;
        return base_timestamp_ <= kMax && base_timestamp_ >= -kMax;
    }

    [[gnu::noinline, gnu::cold]] bool fail(const char* field, const uint8_t* where,
                                           const char* reason) noexcept {
        fault_ = {field, where - begin_, reason};
        return false;
    }

    template <class Int>
    [[gnu::always_inline]] bool varint(const char* field, const uint8_t*& at, const uint8_t* end,
                                       Int& value) noexcept {
        const uint8_t* const behind = read_varint(at, end, value);
        if (behind == nullptr) [[unlikely]]
            return fail(field, at, "not a whole varint of its type");
        at = behind;
        return true;
    }

    [[gnu::always_inline]] bool sized(const char* field, const uint8_t*& at, const uint8_t* end,
                                      Field& out) noexcept {
        const uint8_t* const start = at;
        if (!varint(field, at, end, out.length)) return false;
        if (out.length < -1) return fail(field, start, "negative, and not -1 for null");
        if (out.length > end - at) return fail(field, start, "reaches beyond the record");
        out.data = at;
        at += out.bytes();
        return true;
    }

    // The byte behind the headers, or null. Takes and gives the position by value, so that it stays in a
    // register.
    [[gnu::noinline]] const uint8_t* skip_headers(const uint8_t* count_field, const uint8_t* at,
                                                  const uint8_t* end, int32_t count) noexcept {
        if (count < 0) fail("header_count", count_field, "negative");
        if (count > kHeadersPerRecordMax) fail("header_count", count_field, "more than a record may have");
        for (int32_t i = 0; i < count && !fault_; ++i) {
            const uint8_t* const start = at;
            Field key;
            Field value;
            if (!sized("header_key_length", at, end, key)) break;
            if (key.length < 0) {
                fail("header_key_length", start, "a header's key is never null");
            } else if (!is_utf8(key.data, static_cast<size_t>(key.length))) {
                fail("header_key", key.data, "not UTF-8");
            } else {
                sized("header_value_length", at, end, value);
            }
        }
        return fault_ ? nullptr : at;
    }

    const uint8_t* begin_;
    const uint8_t* at_;
    const uint8_t* end_;
    int64_t base_timestamp_;
    int32_t last_offset_delta_;
    int32_t remaining_;
    int32_t offset_delta_ = -1;
    bool gapless_;
    Fault fault_;
};

}  // namespace ringlog
