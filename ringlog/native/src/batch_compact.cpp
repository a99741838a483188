// Both passes of compaction walk records with the checking parser: files may hold anything.
#include "batch_compact.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "batch_scan.hpp"
#include "record_parse.hpp"

namespace ringlog {

namespace {

template <class AnyField>
Bytes bytes_of_field(const AnyField& field) noexcept {
    return {field.data, static_cast<size_t>(field.bytes())};
}

}  // namespace

int64_t note_keys(const Section& section, int64_t start_offset, KeyMap& map, Fault& fault) noexcept {
    const BatchRow& row = section.row;
    if (row.control() || row.last_offset < start_offset) return -1;
    int64_t full_at = -1;
    RecordParser parser(section.records, row, false);
    parser.visit_all([&](const auto& record) {
        const int64_t offset = row.base_offset + record.offset_delta;
        if (full_at >= 0 || offset < start_offset || record.key.is_null()) return;
        if (!map.put(bytes_of_field(record.key), offset)) full_at = offset;
    });
    fault = parser.fault();
    return full_at;
}

Filtered filter_batch(const uint8_t* batch, const Section& section, const KeyMap& map, const FilterRules& rules,
                      bool keep_empty, uint8_t* to, Fault& fault) noexcept {
    const BatchRow& row = section.row;
    Filtered result;
    if (row.control() || row.base_offset >= rules.end_offset) {
        std::memcpy(to, batch, static_cast<size_t>(row.length));
        return {row.length, row.record_count, false};
    }
    uint8_t* out = to + at::kRecords;
    const uint8_t* run = nullptr;  // where the records begin that are kept and not copied yet
    int64_t max_delta = std::numeric_limits<int64_t>::min();
    const auto end_run = [&](const uint8_t* end) {
        if (run == nullptr) return;
        std::memcpy(out, run, static_cast<size_t>(end - run));
        out += end - run;
        run = nullptr;
    };
    int32_t dropped = 0;
    RecordParser parser(section.records, row, false);
    parser.visit_all([&](const auto& record) {
        const int64_t offset = row.base_offset + record.offset_delta;
        bool keep = true;
        if (offset < rules.end_offset && !record.key.is_null()) {
            keep = map.get(bytes_of_field(record.key)) <= offset &&
                   !(rules.drop_tombstones && record.value.is_null());
        }
        if (!keep) {
            ++dropped;
            end_run(record.begin);
            return;
        }
        ++result.kept;
        max_delta = std::max(max_delta, int64_t{record.timestamp_delta});
        if (run == nullptr) run = record.begin;
    });
    fault = parser.fault();
    if (fault) return result;
    if (dropped == 0 && (row.record_count > 0 || keep_empty)) {
        std::memcpy(to, batch, static_cast<size_t>(row.length));
        result.bytes = row.length;
        return result;
    }
    result.changed = true;
    if (result.kept == 0 && !keep_empty) return result;
    end_run(section.records.data + section.records.size);
    result.bytes = out - to;
    BatchRow left = row;
    left.length = static_cast<int32_t>(result.bytes);
    left.record_count = result.kept;
    left.attributes = static_cast<int16_t>(row.attributes & ~kCodecMask);
    if (result.kept > 0 && !row.append_time()) left.max_timestamp = row.base_timestamp + max_delta;
    write_header(to, left);
    seal_batch(to, static_cast<size_t>(result.bytes));
    return result;
}

}  // namespace ringlog
