// Scanning and checking any bytes.
//
// Invariant: nothing outside the buffer is read. The cursor stands between whole batches, each of which lies
// within the buffer and begins where the one before ended. A deeper level never accepts more than a shallower
// one, what was accepted is accepted again, and the scan ends with a fault exactly when bytes are left. A copy that
// checks on its way, to memory in two pieces, finds what a scan of the CRCs finds, and copies what that accepts.
#include <array>
#include <cstring>
#include <initializer_list>
#include <span>
#include <vector>

#include "batch_copy.hpp"
#include "batch_scan.hpp"
#include "require.hpp"

using namespace ringlog;

namespace {

int64_t scan_to_end(Bytes data, const ScanRules& rules) {
    BatchCursor cursor(data, rules);
    BatchRow row;
    int64_t position = 0;
    int64_t last_offset = -1;
    while (cursor.next(row)) {
        REQUIRE(row.position == position);
        REQUIRE(row.length >= static_cast<int32_t>(at::kRecords));
        position += row.length;
        REQUIRE(position <= static_cast<int64_t>(data.size));
        REQUIRE(cursor.position() == position);
        REQUIRE(row.base_offset >= 0 && row.last_offset >= row.base_offset);
        REQUIRE(row.record_count >= 0 && row.record_count <= row.last_offset - row.base_offset + 1);
        if (rules.expected_offset >= 0) REQUIRE(row.base_offset > last_offset);
        last_offset = row.last_offset;
    }
    REQUIRE(cursor.position() == position);
    REQUIRE(static_cast<bool>(cursor.fault()) == (position != static_cast<int64_t>(data.size)));
    if (cursor.fault()) {
        REQUIRE(cursor.fault().position >= position);
        REQUIRE(cursor.fault().position <= static_cast<int64_t>(data.size) || cursor.fault().incomplete);
        REQUIRE(!cursor.next(row));
    }
    return position;
}

void copy_as_checked(Bytes data) {
    ScanRules rules;
    rules.level = Level::kCrc;
    BatchCursor cursor(data, rules);
    BatchRow row;
    while (cursor.next(row)) {
    }
    std::vector<uint8_t> first(data.size / 3);
    std::vector<uint8_t> second(data.size - first.size());
    const std::array<std::span<uint8_t>, 2> rooms{first, second};
    Rooms into(rooms);
    const Fault fault = copy_whole_batches(into, data);
    REQUIRE(static_cast<bool>(fault) == static_cast<bool>(cursor.fault()));
    REQUIRE(fault.position == cursor.fault().position);
    const auto good = static_cast<size_t>(cursor.position());
    const size_t in_first = good < first.size() ? good : first.size();
    REQUIRE(in_first == 0 || std::memcmp(first.data(), data.data, in_first) == 0);
    REQUIRE(good == in_first || std::memcmp(second.data(), data.data + in_first, good - in_first) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    copy_as_checked({data, size});
    for (const bool gapless : {false, true}) {
        for (const int64_t expected_offset : {int64_t{-1}, int64_t{0}}) {
            int64_t shallower_end = static_cast<int64_t>(size);
            for (const Level level : {Level::kHeaders, Level::kCrc, Level::kFull}) {
                ScanRules rules;
                rules.level = level;
                rules.gapless = gapless;
                rules.expected_offset = expected_offset;
                rules.dense = gapless;
                const int64_t end = scan_to_end({data, size}, rules);
                REQUIRE(end <= shallower_end);
                REQUIRE(scan_to_end({data, static_cast<size_t>(end)}, rules) == end);
                shallower_end = end;
            }
        }
    }
    return 0;
}
