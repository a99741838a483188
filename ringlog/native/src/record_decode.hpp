// Decodes the records of batches into columns: measured and checked first, then filled.
#pragma once
#include <cstdint>
#include <vector>

#include "batch_format.hpp"
#include "bytes.hpp"
#include "fault.hpp"

namespace ringlog {

// Makes timestamps of deltas: the producer's, or the one append time that holds for the whole batch.
struct Clock {
    explicit Clock(const BatchRow& row) noexcept
        : base(static_cast<uint64_t>(row.append_time() ? row.max_timestamp : row.base_timestamp)),
          delta_mask(row.append_time() ? 0 : ~uint64_t{0}) {}

    // Wraps instead of overflowing: the parser has refused deltas for which it would.
    int64_t at(int64_t delta) const noexcept {
        return static_cast<int64_t>(base + (static_cast<uint64_t>(delta) & delta_mask));
    }

    uint64_t base;
    uint64_t delta_mask;
};

// The records of one batch, unfolded where the batch is compressed.
struct Section {
    BatchRow row;
    Bytes records;
    bool unfolded;
};

// What one column of byte strings needs.
struct ByteTotals {
    int64_t count = 0;
    int64_t bytes = 0;
    int64_t nulls = 0;
};

struct Totals {
    ByteTotals keys;
    ByteTotals values;
    ByteTotals header_keys;
    ByteTotals header_values;

    int64_t records() const noexcept { return values.count; }
};

// Memory for one column of byte strings, as large as its totals say. Null pointers: not wanted.
struct ByteSink {
    int32_t* offsets = nullptr;  // count + 1
    uint8_t* data = nullptr;
    uint8_t* valid = nullptr;  // zeroed; null when no element is null
    ByteTotals totals;
};

struct ColumnSinks {
    int64_t records = 0;
    int64_t* offsets = nullptr;
    int64_t* timestamps = nullptr;
    ByteSink keys;
    ByteSink values;
    int32_t* header_offsets = nullptr;  // records + 1; null: headers are not wanted
    ByteSink header_keys;
    ByteSink header_values;
};

// Checks every record of the sections and adds up what their columns need. At a fault, `faulty` is the index
// of its section and the fault's position lies within that section's records.
Totals measure_sections(const std::vector<Section>& sections, bool with_headers, Fault& fault,
                        size_t& faulty) noexcept;

// Fills the columns of sections that were measured. False when the bytes have changed since: nothing is
// written outside the sinks even then.
bool fill_sections(const std::vector<Section>& sections, const ColumnSinks& sinks) noexcept;

// Where each record begins within its section. Faults as measure_sections.
void index_sections(const std::vector<Section>& sections, std::vector<uint32_t>& positions, Fault& fault,
                    size_t& faulty);

// How many bytes the records of a batch take, judged by the first of them.
struct BytesNeeded {
    int64_t at_least = 0;
    int64_t likely = 0;  // if the rest are as long as these, and a little more
};

// Sets `fault` when no bytes that follow could make the records right.
BytesNeeded records_bytes_needed(Bytes prefix, const BatchRow& row, Fault& fault) noexcept;

}  // namespace ringlog
