// The passes over records that decoding takes: measure, fill, index.
#include "record_decode.hpp"

#include "copy_bytes.hpp"
#include "record_parse.hpp"

namespace ringlog {
namespace {

inline void add(ByteTotals& totals, const Field& field) noexcept {
    ++totals.count;
    if (field.length > 0) totals.bytes += field.length;
    totals.nulls += field.length < 0 ? 1 : 0;
}

// Appends to a sink; false when its memory is full.
class Appender {
public:
    explicit Appender(const ByteSink& sink) noexcept : sink_(sink) {
        if (wanted()) sink_.offsets[0] = 0;
    }

    bool wanted() const noexcept { return sink_.offsets != nullptr; }
    int64_t count() const noexcept { return count_; }

    bool append(const Field& field) noexcept {
        const int64_t size = field.length > 0 ? field.length : 0;
        if (count_ == sink_.totals.count || size > sink_.totals.bytes - used_) return false;
        copy_bytes(sink_.data + used_, field.data, static_cast<size_t>(size));
        used_ += size;
        if (sink_.valid != nullptr) {
            const auto bit = static_cast<uint8_t>(1 << (count_ & 7));
            uint8_t& byte = sink_.valid[count_ >> 3];
            byte = static_cast<uint8_t>(field.length < 0 ? byte & ~bit : byte | bit);
        }
        sink_.offsets[++count_] = static_cast<int32_t>(used_);
        return true;
    }

    bool complete() const noexcept {
        return !wanted() || (count_ == sink_.totals.count && used_ == sink_.totals.bytes);
    }

private:
    ByteSink sink_;
    int64_t count_ = 0;
    int64_t used_ = 0;
};

}  // namespace

Totals measure_sections(const std::vector<Section>& sections, bool with_headers, Fault& fault, size_t& faulty) noexcept {
    Totals totals;
    Record record;
    for (size_t i = 0; i < sections.size(); ++i) {
        const Section& section = sections[i];
        const uint8_t* const end = section.records.data + section.records.size;
        RecordParser parser(section.records, section.row, false);
        while (parser.next(record)) {
            add(totals.keys, record.key);
            add(totals.values, record.value);
            if (!with_headers) continue;
            const uint8_t* at = record.headers;
            Field key;
            Field value;
            for (int32_t j = 0; j < record.header_count && next_header(at, end, key, value); ++j) {
                add(totals.header_keys, key);
                add(totals.header_values, value);
            }
        }
        if (parser.fault()) {
            fault = parser.fault();
            faulty = i;
            return totals;
        }
    }
    return totals;
}

bool fill_sections(const std::vector<Section>& sections, const ColumnSinks& sinks) noexcept {
    Appender keys(sinks.keys);
    Appender values(sinks.values);
    Appender header_keys(sinks.header_keys);
    Appender header_values(sinks.header_values);
    const int64_t records_max = sinks.values.totals.count;  // every sink was measured together
    int64_t i = 0;
    if (sinks.header_offsets != nullptr) sinks.header_offsets[0] = 0;
    Record record;
    for (const Section& section : sections) {
        const uint8_t* const end = section.records.data + section.records.size;
        RecordParser parser(section.records, section.row, false);
        while (parser.next(record)) {
            if (i == records_max) return false;
            if (sinks.offsets != nullptr) sinks.offsets[i] = section.row.base_offset + record.offset_delta;
            if (sinks.timestamps != nullptr) sinks.timestamps[i] = section.timestamp(record.timestamp_delta);
            if (keys.wanted() && !keys.append(record.key)) return false;
            if (values.wanted() && !values.append(record.value)) return false;
            ++i;
            if (sinks.header_offsets == nullptr) continue;
            const uint8_t* at = record.headers;
            for (int32_t j = 0; j < record.header_count; ++j) {
                Field key;
                Field value;
                if (!next_header(at, end, key, value)) return false;
                if (!header_keys.append(key) || !header_values.append(value)) return false;
            }
            sinks.header_offsets[i] = static_cast<int32_t>(header_keys.count());
        }
        if (parser.fault()) return false;
    }
    return i == records_max && keys.complete() && values.complete() && header_keys.complete() &&
           header_values.complete();
}

void index_sections(const std::vector<Section>& sections, std::vector<uint32_t>& positions, Fault& fault,
                    size_t& faulty) {
    Record record;
    for (size_t i = 0; i < sections.size(); ++i) {
        RecordParser parser(sections[i].records, sections[i].row, false);
        auto position = static_cast<uint32_t>(parser.position());
        while (parser.next(record)) {
            positions.push_back(position);
            position = static_cast<uint32_t>(parser.position());
        }
        if (parser.fault()) {
            fault = parser.fault();
            faulty = i;
            return;
        }
    }
}

int64_t records_bytes_needed(Bytes prefix, const BatchRow& row, Fault& fault) noexcept {
    const uint8_t* const end = prefix.data + prefix.size;
    RecordParser parser(prefix, row, false);
    Record record;
    for (int64_t remaining = row.record_count; remaining > 0; --remaining) {
        const uint8_t* const start = prefix.data + parser.position();
        const int64_t others = (remaining - 1) * kRecordBytesMin;
        int32_t length = 0;
        const uint8_t* const body = read_varint(start, end, length);
        if (body == nullptr && end - start < 5) return static_cast<int64_t>(prefix.size) + 1 + others;
        if (body != nullptr && length > end - body) return (body - prefix.data) + length + others;
        if (!parser.next(record)) break;
    }
    if (parser.fault()) {
        fault = parser.fault();
        return -1;
    }
    fault = {"records", parser.position(), "bytes are left behind the last record"};
    return -1;
}

}  // namespace ringlog
