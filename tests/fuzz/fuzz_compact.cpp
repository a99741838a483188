// Compacting any bytes whose batch headers are plausible; CRCs are not asked for.
//
// Invariant: nothing is read outside of the buffer, and nothing is written outside of memory as large as the batch.
// What is left of a batch is a right batch with the same offsets, no more records, and never more bytes; when nothing
// was left out it is the same bytes. Compacting what is left once more changes nothing.
#include <cstring>
#include <memory>
#include <vector>

#include "batch_compact.hpp"
#include "batch_scan.hpp"
#include "require.hpp"

using namespace ringlog;

namespace {

Section section_of(const uint8_t* batch, BatchRow row) {
    row.position = 0;
    return {row, {batch + at::kRecords, static_cast<size_t>(row.length) - at::kRecords}, false};
}

void check_left(const uint8_t* left, const Filtered& done, const BatchRow& before, const KeyMap& map,
                const FilterRules& rules) {
    ScanRules scan;
    scan.level = done.changed ? Level::kFull : Level::kHeaders;
    BatchCursor cursor({left, static_cast<size_t>(done.bytes)}, scan);
    BatchRow row;
    REQUIRE(cursor.next(row));
    REQUIRE(cursor.position() == done.bytes);
    REQUIRE(row.base_offset == before.base_offset && row.last_offset == before.last_offset);
    REQUIRE(row.record_count == done.kept && done.kept <= before.record_count);
    REQUIRE(row.producer_id == before.producer_id && row.base_sequence == before.base_sequence);
    if (row.codec() != 0) return;
    const auto room = std::make_unique<uint8_t[]>(static_cast<size_t>(row.length));
    Fault fault;
    const Filtered again = filter_batch(left, section_of(left, row), map, rules, true, room.get(), fault);
    REQUIRE(!fault && !again.changed && again.bytes == done.bytes);
    REQUIRE(std::memcmp(room.get(), left, static_cast<size_t>(done.bytes)) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    ScanRules scan;
    scan.level = Level::kHeaders;
    BatchCursor cursor({data, size}, scan);
    std::vector<BatchRow> rows;
    for (BatchRow row; cursor.next(row);) {
        if (row.codec() == 0) rows.push_back(row);
    }
    for (const size_t slots : {size_t{1}, size_t{4}, size_t{64}}) {
        KeyMap map(slots * 24, {1, 2});
        for (const BatchRow& row : rows) {
            Fault fault;
            const int64_t full_at = note_keys(section_of(data + row.position, row), 0, map, fault);
            REQUIRE(full_at == -1 || (full_at >= row.base_offset && full_at <= row.last_offset));
        }
        REQUIRE(map.size() <= map.capacity());
        for (const bool tombstones : {false, true}) {
            for (const BatchRow& row : rows) {
                const FilterRules rules{row.base_offset + 1 + (row.last_offset - row.base_offset) / 2, tombstones};
                const auto room = std::make_unique<uint8_t[]>(static_cast<size_t>(row.length));
                Fault fault;
                const uint8_t* const batch = data + row.position;
                const Filtered done =
                    filter_batch(batch, section_of(batch, row), map, rules, tombstones, room.get(), fault);
                if (fault) continue;
                REQUIRE(done.bytes >= 0 && done.bytes <= row.length);
                if (done.bytes == 0) {
                    REQUIRE(done.kept == 0 && done.changed);
                    continue;
                }
                if (!done.changed) REQUIRE(std::memcmp(room.get(), batch, static_cast<size_t>(row.length)) == 0);
                check_left(room.get(), done, row, map, rules);
            }
        }
    }
    return 0;
}
