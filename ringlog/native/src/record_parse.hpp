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

#include "batch_format.hpp"
#include "bytes.hpp"
#include "fault.hpp"
#include "utf8.hpp"
#include "varint.hpp"

namespace ringlog {

// Bytes or null.
struct Field {
    const uint8_t* data = nullptr;
    int32_t length = -1;  // -1: null
};

struct Record {
    int64_t timestamp_delta = 0;
    int32_t offset_delta = 0;
    Field key;
    Field value;
    int32_t header_count = 0;
    const uint8_t* headers = nullptr;  // where the first header begins
};

// What follows reads records again that RecordParser has accepted before, and asks only for what keeps it
// inside `end`: the memory may be shared, and its bytes may have changed since. Null or false: they have.

inline const uint8_t* reread_field(const uint8_t* at, const uint8_t* end, Field& field) noexcept {
    at = read_varint(at, end, field.length);
    if (at == nullptr || field.length > end - at) return nullptr;
    field.data = at;
    return at + (field.length > 0 ? field.length : 0);
}

// Returns the byte behind the record.
inline const uint8_t* reread_record(const uint8_t* at, const uint8_t* end, Record& record) noexcept {
    int32_t length = 0;
    at = read_varint(at, end, length);
    if (at == nullptr || length < 1 || length > end - at) return nullptr;
    const uint8_t* const behind = at + length;
    at = read_varint(at + 1, behind, record.timestamp_delta);
    if (at != nullptr) at = read_varint(at, behind, record.offset_delta);
    if (at != nullptr) at = reread_field(at, behind, record.key);
    if (at != nullptr) at = reread_field(at, behind, record.value);
    if (at != nullptr) at = read_varint(at, behind, record.header_count);
    record.headers = at;
    return at == nullptr ? nullptr : behind;
}

// Steps through the headers of a record, from Record::headers on.
inline bool next_header(const uint8_t*& at, const uint8_t* end, Field& key, Field& value) noexcept {
    at = reread_field(at, end, key);
    if (at != nullptr) at = reread_field(at, end, value);
    return at != nullptr && key.length >= 0;
}

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

    // Parses the next record. False at the end of the batch and at a fault; fault() tells which.
    [[gnu::always_inline]] bool next(Record& record) noexcept {
        if (remaining_ == 0) {
            if (at_ != end_) fail("records", at_, "bytes are left behind the last record");
            return false;
        }
        --remaining_;
        const uint8_t* const start = at_;
        const uint8_t* at = at_;
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
        at += out.length > 0 ? out.length : 0;
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
