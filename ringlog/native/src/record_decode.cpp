// The passes over records that decoding takes: measure, fill, index.
#include "record_decode.hpp"

#include "copy_bytes.hpp"
#include "record_parse.hpp"
#include "record_reread.hpp"

namespace ringlog {
namespace {

template <class AnyField>
[[gnu::always_inline]] inline void add(ByteTotals& totals, const AnyField& field) noexcept {
    ++totals.count;
    totals.bytes += field.bytes();
    totals.nulls += field.is_null() ? 1 : 0;
}

void add_headers(Totals& totals, const Record& record, const uint8_t* end) noexcept {
    const uint8_t* at = record.headers;
    Field key;
    Field value;
    for (int32_t j = 0; j < record.header_count && next_header(at, end, key, value); ++j) {
        add(totals.header_keys, key);
        add(totals.header_values, value);
    }
}
void add_headers(Totals&, const PlainRecord&, const uint8_t*) noexcept {}

// Fills a sink, element by element; false when its memory is full.
class Appender {
public:
    explicit Appender(const ByteSink& sink) noexcept : sink_(sink) {
        if (wanted()) sink_.offsets[0] = 0;
    }

    bool wanted() const noexcept { return sink_.offsets != nullptr; }

    // The field lies in front of `end`, up to which bytes are readable.
    template <class AnyField>
    [[gnu::always_inline]] bool append(int64_t i, const AnyField& field, const uint8_t* end) noexcept {
        const int64_t size = field.bytes();
        const int64_t free = sink_.totals.bytes - used_;
        if (i >= sink_.totals.count || size > free) [[unlikely]]
            return false;
        if (size > 0) copy(sink_.data + used_, field.data, size, free, end - field.data);
        used_ += size;
        sink_.offsets[i + 1] = static_cast<int32_t>(used_);
        if (sink_.valid != nullptr && !field.is_null()) {
            sink_.valid[i >> 3] = static_cast<uint8_t>(sink_.valid[i >> 3] | 1 << (i & 7));
        }
        return true;
    }

    bool complete(int64_t count) const noexcept {
        return !wanted() || (count == sink_.totals.count && used_ == sink_.totals.bytes);
    }

private:
    // `free` bytes are writable, `readable` ones are readable.
    [[gnu::always_inline]] static void copy(uint8_t* to, const uint8_t* from, int64_t size, int64_t free,
                                            int64_t readable) noexcept {
        constexpr int64_t kShortBytes = 256;  // longer ones are worth the call of memcpy
        if (size <= kShortBytes && free >= size + kRoomBytes && readable >= size + kRoomBytes) [[likely]] {
            copy_roomy(to, from, size);
        } else {
            copy_bytes(to, from, static_cast<size_t>(size));
        }
    }

    ByteSink sink_;
    int64_t used_ = 0;
};

// Fills the two header columns; false when their memory is full or the bytes have changed.
class HeaderAppender {
public:
    HeaderAppender(const ByteSink& keys, const ByteSink& values) noexcept : keys_(keys), values_(values) {}

    // `behind` is the byte behind the record.
    bool append(const Record& record, const uint8_t* behind) noexcept {
        const uint8_t* at = record.headers;
        for (int32_t j = 0; j < record.header_count; ++j, ++count_) {
            Field key;
            Field value;
            if (!next_header(at, behind, key, value)) return false;
            if (!keys_.append(count_, key, behind) || !values_.append(count_, value, behind)) return false;
        }
        return true;
    }
    static bool append(const PlainRecord&, const uint8_t*) noexcept { return true; }

    int64_t count() const noexcept { return count_; }
    bool complete() const noexcept { return keys_.complete(count_) && values_.complete(count_); }

private:
    Appender keys_;
    Appender values_;
    int64_t count_ = 0;
};

}  // namespace

Totals measure_sections(const std::vector<Section>& sections, bool with_headers, Fault& fault,
                        size_t& faulty) noexcept {
    Totals totals;
    // Apart from the rest, so that they stay in registers while headers are added up elsewhere.
    ByteTotals keys;
    ByteTotals values;
    for (size_t i = 0; i < sections.size() && !fault; ++i) {
        const Section& section = sections[i];
        const uint8_t* const end = section.records.data + section.records.size;
        RecordParser parser(section.records, section.row, false);
        parser.visit_all([&](const auto& record) {
            add(keys, record.key);
            add(values, record.value);
            if (with_headers) add_headers(totals, record, end);
        });
        fault = parser.fault();
        faulty = i;
    }
    totals.keys = keys;
    totals.values = values;
    return totals;
}

bool fill_sections(const std::vector<Section>& sections, const ColumnSinks& sinks) noexcept {
    // Local, so that the compiler knows that no byte it stores changes them.
    int64_t* const offsets = sinks.offsets;
    int64_t* const timestamps = sinks.timestamps;
    int32_t* const header_offsets = sinks.header_offsets;
    Appender keys(sinks.keys);
    Appender values(sinks.values);
    HeaderAppender headers(sinks.header_keys, sinks.header_values);
    if (header_offsets != nullptr) header_offsets[0] = 0;
    int64_t i = 0;
    for (const Section& section : sections) {
        if (section.row.record_count > sinks.records - i) return false;
        const uint8_t* const end = section.records.data + section.records.size;
        const int64_t base_offset = section.row.base_offset;
        const Clock clock(section.row);
        const auto fill = [&](const auto& record, const uint8_t* behind) {
            if (offsets != nullptr) offsets[i] = base_offset + record.offset_delta;
            if (timestamps != nullptr) timestamps[i] = clock.at(record.timestamp_delta);
            if (keys.wanted() && !keys.append(i, record.key, end)) return false;
            if (values.wanted() && !values.append(i, record.value, end)) return false;
            if (header_offsets != nullptr) {
                if (!headers.append(record, behind)) return false;
                header_offsets[i + 1] = static_cast<int32_t>(headers.count());
            }
            ++i;
            return true;
        };
        if (!reread_records(section.records, section.row.record_count, fill)) return false;
    }
    return i == sinks.records && keys.complete(i) && values.complete(i) && headers.complete();
}

void index_sections(const std::vector<Section>& sections, std::vector<uint32_t>& positions, Fault& fault,
                    size_t& faulty) {
    for (size_t i = 0; i < sections.size() && !fault; ++i) {
        const uint8_t* const begin = sections[i].records.data;
        RecordParser parser(sections[i].records, sections[i].row, false);
        parser.visit_all([&](const auto& record) {
            positions.push_back(static_cast<uint32_t>(record.begin - begin));
        });
        fault = parser.fault();
        faulty = i;
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
