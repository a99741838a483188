// Stamping any bytes.
//
// Invariant: when stamping is refused, no byte has changed. Otherwise only offset, epoch and, with an append
// time, attributes, maximal timestamp and CRC have; the batches follow each other without a gap up to the
// offset that was returned, and with an append time their CRCs are right.
#include <vector>

#include "batch_scan.hpp"
#include "require.hpp"

using namespace ringlog;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::vector<uint8_t> before(data, data + size);
    for (const int64_t base_offset : {int64_t{0}, int64_t{1} << 62, INT64_MAX - 3}) {
        for (const bool append_time : {false, true}) {
            std::vector<uint8_t> stamped = before;
            Fault fault;
            const int64_t next =
                stamp_batches(stamped.data(), size, {base_offset, 6, append_time, 1234}, fault);
            if (fault) {
                REQUIRE(next == -1);
                REQUIRE(stamped == before);
                continue;
            }
            ScanRules rules;
            rules.level = append_time ? Level::kCrc : Level::kHeaders;
            rules.expected_offset = base_offset;
            rules.min_epoch = 6;
            BatchCursor cursor({stamped.data(), size}, rules);
            BatchRow row;
            int64_t last_offset = base_offset - 1;
            while (cursor.next(row)) {
                last_offset = row.last_offset;
                REQUIRE(row.leader_epoch == 6);
                if (append_time) REQUIRE(row.append_time() && row.max_timestamp == 1234);
                // Put back what stamping may change, and the batch must be the old one.
                uint8_t* const batch = stamped.data() + row.position;
                const auto restore = [&](size_t at, size_t bytes) {
                    std::memcpy(batch + at, before.data() + row.position + at, bytes);
                };
                restore(at::kBaseOffset, 8);
                restore(at::kLeaderEpoch, 4);
                if (append_time) {
                    restore(at::kCrc, 4);
                    restore(at::kAttributes, 2);
                    restore(at::kMaxTimestamp, 8);
                }
            }
            REQUIRE(!cursor.fault());
            REQUIRE(next == last_offset + 1);
            REQUIRE(stamped == before);
        }
    }
    return 0;
}
