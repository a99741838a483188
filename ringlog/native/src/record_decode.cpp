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

// Fills a sink, element by element; false when its memory is full.
class Appender {
public:
    explicit Appender(const ByteSink& sink) noexcept : sink_(sink) {
        if (wanted()) sink_.offsets[0] = 0;
    }

    bool wanted() const noexcept { return sink_.offsets != nullptr; }

    [[gnu::always_inline]] bool append(int64_t i, const Field& field) noexcept {
        const int64_t size = field.length > 0 ? field.length : 0;
        if (i >= sink_.totals.count || size > sink_.totals.bytes - used_) [[unlikely]]
            return false;
        copy_bytes(sink_.data + used_, field.data, static_cast<size_t>(size));
        used_ += size;
        sink_.offsets[i + 1] = static_cast<int32_t>(used_);
        if (sink_.valid != nullptr && field.length >= 0) {
            sink_.valid[i >> 3] = static_cast<uint8_t>(sink_.valid[i >> 3] | 1 << (i & 7));
        }
        return true;
    }

    bool complete(int64_t count) const noexcept {
        return !wanted() || (count == sink_.totals.count && used_ == sink_.totals.bytes);
    }

private:
    ByteSink sink_;
    int64_t used_ = 0;
};

}  // namespace

Totals measure_sections(const std::vector<Section>& sections, bool with_headers, Fault& fault,
                        size_t& faulty) noexcept {
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
    int64_t i = 0;
    int64_t headers = 0;
    if (sinks.header_offsets != nullptr) sinks.header_offsets[0] = 0;
    Record record;
    for (const Section& section : sections) {
        const uint8_t* at = section.records.data;
        const uint8_t* const end = at + section.records.size;
        if (section.row.record_count > sinks.records - i) return false;
        for (const int64_t stop = i + section.row.record_count; i < stop; ++i) {
            at = reread_record(at, end, record);
            if (at == nullptr) return false;
            if (sinks.offsets != nullptr) sinks.offsets[i] = section.row.base_offset + record.offset_delta;
            if (sinks.timestamps != nullptr) sinks.timestamps[i] = section.timestamp(record.timestamp_delta);
            if (keys.wanted() && !keys.append(i, record.key)) return false;
            if (values.wanted() && !values.append(i, record.value)) return false;
            if (sinks.header_offsets == nullptr) continue;
            const uint8_t* header = record.headers;
            for (int32_t j = 0; j < record.header_count; ++j, ++headers) {
                Field key;
                Field value;
                if (!next_header(header, at, key, value)) return false;
                if (!header_keys.append(headers, key) || !header_values.append(headers, value)) return false;
            }
            sinks.header_offsets[i + 1] = static_cast<int32_t>(headers);
        }
    }
    return i == sinks.records && keys.complete(i) && values.complete(i) && header_keys.complete(headers) &&
           header_values.complete(headers);
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

BytesNeeded records_bytes_needed(Bytes prefix, const BatchRow& row, Fault& fault) noexcept {
    const uint8_t* const end = prefix.data + prefix.size;
    RecordParser parser(prefix, row, false);
    Record record;
    for (int64_t seen = 0; seen < row.record_count; ++seen) {
        const uint8_t* const start = prefix.data + parser.position();
        int32_t length = 0;
        const uint8_t* const body = read_varint(start, end, length);
        const bool length_is_cut = body == nullptr && end - start < kVarintBytesMax;
        if (length_is_cut || (body != nullptr && length > end - body)) {
            const int64_t this_one = length_is_cut ? (end - start) + 1 : (body - start) + int64_t{length};
            const int64_t others = row.record_count - seen - 1;
            BytesNeeded needed;
            needed.at_least = parser.position() + this_one + others * kRecordBytesMin;
            needed.likely = needed.at_least;
            // Counts have 22 bits and positions 26, so the product fits.
            if (seen > 0) needed.likely = parser.position() * row.record_count / seen * 9 / 8;
            return needed;
        }
        if (!parser.next(record)) {
            fault = parser.fault();
            return {};
        }
    }
    fault = {"records", parser.position(), "bytes are left behind the last record"};
    return {};
}

}  // namespace ringlog
