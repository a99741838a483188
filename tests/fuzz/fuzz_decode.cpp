// Decoding the records of any bytes whose batch headers are plausible; CRCs are not asked for.
//
// Invariant: the three passes agree. When measuring finds no fault, filling columns of exactly the measured
// sizes succeeds and stays inside them, and the index has as many records; when it finds one, the index finds
// the same. No prefix of right records needs more bytes than they take. Filling columns from bytes that have
// changed since they were measured stays inside them too. The same columns are made for Arrow, and all of their memory is
// given back, in whatever order.
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <vector>

#include "arrow_records.hpp"
#include "batch_scan.hpp"
#include "record_decode.hpp"
#include "require.hpp"

using namespace ringlog;

namespace {

// Memory of exactly the size that was asked for, so that the sanitizer sees one byte too many.
template <class T>
T* exact(std::vector<std::unique_ptr<uint8_t[]>>& memory, int64_t count) {
    memory.push_back(std::make_unique<uint8_t[]>(static_cast<size_t>(count) * sizeof(T)));
    return reinterpret_cast<T*>(memory.back().get());
}

ByteSink sink_of(std::vector<std::unique_ptr<uint8_t[]>>& memory, const ByteTotals& totals) {
    return {exact<int32_t>(memory, totals.count + 1), exact<uint8_t>(memory, totals.bytes),
            totals.nulls > 0 ? exact<uint8_t>(memory, (totals.count + 7) / 8) : nullptr, totals};
}

bool fill(const std::vector<Section>& sections, const Totals& totals) {
    std::vector<std::unique_ptr<uint8_t[]>> memory;
    ColumnSinks sinks;
    sinks.records = totals.records();
    sinks.offsets = exact<int64_t>(memory, totals.records());
    sinks.timestamps = exact<int64_t>(memory, totals.records());
    sinks.keys = sink_of(memory, totals.keys);
    sinks.values = sink_of(memory, totals.values);
    sinks.header_offsets = exact<int32_t>(memory, totals.records() + 1);
    sinks.header_keys = sink_of(memory, totals.header_keys);
    sinks.header_values = sink_of(memory, totals.header_values);
    if (!fill_sections(sections, sinks)) return false;
    REQUIRE(sinks.header_offsets[totals.records()] == totals.header_keys.count);
    REQUIRE(std::is_sorted(sinks.header_offsets, sinks.header_offsets + totals.records() + 1));
    return true;
}

bool make_arrow(const std::vector<Section>& sections, const Totals& totals) {
    const RecordOrigin origin{std::make_shared<RepeatedText>("topic", totals.records()), 3};
    ArrowArray array{};
    if (!make_arrow_records(sections, totals, origin, array)) {
        REQUIRE(array.release == nullptr);
        return false;
    }
    REQUIRE(array.length == totals.records() && array.n_children == 7);
    // One that is moved out outlives the others.
    ArrowArray values = *array.children[5];
    array.children[5]->release = nullptr;
    array.release(&array);
    REQUIRE(array.release == nullptr);
    const auto* const offsets = static_cast<const int32_t*>(values.buffers[1]);
    REQUIRE(offsets[values.length] == totals.values.bytes);
    values.release(&values);
    return true;
}

void check_needed(const Section& section) {
    for (size_t size = 0; size < section.records.size; size += 1 + section.records.size / 16) {
        Fault fault;
        const BytesNeeded needed = records_bytes_needed({section.records.data, size}, section.row, fault);
        REQUIRE(!fault);
        REQUIRE(needed.at_least > static_cast<int64_t>(size));
        REQUIRE(needed.at_least <= static_cast<int64_t>(section.records.size));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    ScanRules rules;
    rules.level = Level::kHeaders;
    BatchCursor cursor({data, size}, rules);
    std::vector<Section> sections;
    BatchRow row;
    while (cursor.next(row)) {
        const Bytes records{data + row.position + at::kRecords,
                            static_cast<size_t>(row.length) - at::kRecords};
        sections.push_back({row, records, false});
    }

    Fault fault;
    size_t faulty = 0;
    const Totals totals = measure_sections(sections, true, fault, faulty);
    std::vector<uint32_t> positions;
    Fault index_fault;
    size_t index_faulty = 0;
    index_sections(sections, positions, index_fault, index_faulty);
    REQUIRE(fault.field == index_fault.field && fault.position == index_fault.position &&
            faulty == index_faulty);
    if (fault) {
        REQUIRE(fault.position >= 0 && fault.position <= static_cast<int64_t>(sections[faulty].records.size));
        // Sizes of other bytes: they may fit by chance, but nothing may be written outside.
        fill(sections, totals);
        return 0;
    }
    REQUIRE(static_cast<int64_t>(positions.size()) == totals.records());
    REQUIRE(fill(sections, totals));
    REQUIRE(make_arrow(sections, totals));
    for (const Section& section : sections) check_needed(section);

    // Change one byte at a time, a little: lengths then grow and shrink, and the records still hang together.
    std::vector<uint8_t> changed(data, data + size);
    for (Section& section : sections) section.records.data = changed.data() + (section.records.data - data);
    if (size > at::kRecords) {
        changed[at::kRecords] ^= 0x02;
        REQUIRE(fill(sections, totals) == make_arrow(sections, totals));
        changed[at::kRecords] ^= 0x02;
    }
    for (size_t at = at::kRecords; at < size; at += 1 + size / 32) {
        for (const int bits : {0x02, 0x04, 0x81}) {
            changed[at] = static_cast<uint8_t>(changed[at] ^ bits);
            fill(sections, totals);
            changed[at] = static_cast<uint8_t>(changed[at] ^ bits);
        }
    }
    return 0;
}
