// The records of batches that Python hands in: a buffer, its BATCH_TABLE rows, and what compressed ones unfold to.
#pragma once
#include <nanobind/nanobind.h>

#include <cstring>
#include <deque>
#include <limits>
#include <vector>

#include "py_buffer.hpp"
#include "py_fault.hpp"
#include "record_decode.hpp"

namespace ringlog {

inline BatchRow read_row(const uint8_t* from) noexcept {
    BatchRow row;
    std::memcpy(&row, from, sizeof row);
    return row;
}

// What scan() has seen to, asked again of rows that Python hands in: sums and differences of them do not overflow.
inline bool is_plausible(const BatchRow& row) noexcept {
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    return row.position >= 0 && row.position < kMax - kBatchBytesMax && row.record_count >= 0 && row.base_offset >= 0 &&
           row.last_offset >= row.base_offset && row.last_offset < kMax &&
           row.last_offset - row.base_offset <= std::numeric_limits<int32_t>::max();
}

[[noreturn]] inline void raise(const Section& section, Fault fault) {
    const int64_t records = section.row.position + static_cast<int64_t>(at::kRecords);
    if (section.unfolded) throw CorruptBatchError(fault, records);
    fault.position += records;
    throw CorruptBatchError(fault);
}

// The records of some batches of a buffer. Holds the buffer, and the unfolded records of compressed batches.
class Sections {
public:
    // `rows`: BATCH_TABLE rows of `data`. `payloads`: None, or for each row None or its unfolded records.
    Sections(nanobind::handle data, nanobind::handle rows, nanobind::handle payloads) {
        const PyBuffer& batches = buffers_.emplace_back(data);
        const PyBuffer table(rows);
        if (table.size() % sizeof(BatchRow) != 0) throw nanobind::value_error("rows must be BATCH_TABLE rows");
        sections_.reserve(table.size() / sizeof(BatchRow));
        for (size_t at = 0; at < table.size(); at += sizeof(BatchRow)) {
            add(batches, read_row(table.data() + at), payloads);
        }
    }

    Sections(const Sections&) = delete;
    Sections& operator=(const Sections&) = delete;

    const std::vector<Section>& all() const noexcept { return sections_; }

private:
    void add(const PyBuffer& batches, const BatchRow& row, nanobind::handle payloads) {
        const auto size = static_cast<int64_t>(batches.size());
        if (!is_plausible(row) || row.position > size || row.length < static_cast<int32_t>(at::kRecords) ||
            row.length > size - row.position) {
            throw nanobind::value_error("rows must describe batches of the buffer");
        }
        Section section{row, {}, false};
        if (!payloads.is_none()) {
            if (const nanobind::object payload = payloads[sections_.size()]; !payload.is_none()) {
                section.records = buffers_.emplace_back(payload).bytes();
                section.unfolded = true;
            }
        }
        if (!section.unfolded) {
            section.records = {batches.data() + row.position + at::kRecords,
                               static_cast<size_t>(row.length) - at::kRecords};
        }
        // Checked before anything is sized by the count.
        if (row.record_count * kRecordBytesMin > static_cast<int64_t>(section.records.size)) {
            const Fault fault{"record_count", row.position + static_cast<int64_t>(at::kRecordCount),
                              "more records than the batch has room for"};
            throw CorruptBatchError(fault);
        }
        sections_.push_back(section);
    }

    std::deque<PyBuffer> buffers_;  // a deque: references into it stay good
    std::vector<Section> sections_;
};

}  // namespace ringlog
