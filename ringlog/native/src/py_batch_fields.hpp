// What a batch says beside its records, as Python hands it over, and the row that its header is written from.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>

#include "batch_format.hpp"

namespace ringlog {

struct BatchFields {
    int64_t base_offset;
    int32_t leader_epoch;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t base_sequence;
    int16_t attributes;
};

inline BatchFields read_fields(const nanobind::tuple& fields) {
    namespace nb = nanobind;
    if (fields.size() != 6) throw nb::value_error("fields must have six entries");
    return {nb::cast<int64_t>(fields[0]), nb::cast<int32_t>(fields[1]), nb::cast<int64_t>(fields[2]),
            nb::cast<int16_t>(fields[3]), nb::cast<int32_t>(fields[4]), nb::cast<int16_t>(fields[5])};
}

inline BatchRow make_row(const BatchFields& fields, int32_t count, int64_t records_bytes,
                         int64_t base_timestamp, int64_t max_timestamp) noexcept {
    BatchRow row{};
    row.base_offset = fields.base_offset;
    row.last_offset = fields.base_offset + (count > 0 ? count - 1 : 0);
    row.base_timestamp = base_timestamp;
    row.max_timestamp = max_timestamp;
    row.producer_id = fields.producer_id;
    row.length = static_cast<int32_t>(int64_t{at::kRecords} + records_bytes);
    row.leader_epoch = fields.leader_epoch;
    row.base_sequence = fields.base_sequence;
    row.record_count = count;
    row.producer_epoch = fields.producer_epoch;
    row.attributes = fields.attributes;
    return row;
}

}  // namespace ringlog
