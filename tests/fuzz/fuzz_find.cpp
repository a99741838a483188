// Finding the next whole batch in any bytes.
//
// Invariant: what is found is the first place at which a scan accepts a batch of a high enough offset, and
// nothing is found only when there is no such place; as a search that tries every byte would say.
#include <initializer_list>

#include "batch_scan.hpp"
#include "require.hpp"

using namespace ringlog;

namespace {

int64_t find_slowly(Bytes data, int64_t start, int64_t min_offset) {
    ScanRules rules;
    rules.level = Level::kCrc;
    for (auto at = static_cast<size_t>(start); at < data.size; ++at) {
        BatchCursor cursor({data.data + at, data.size - at}, rules);
        BatchRow row;
        if (cursor.next(row) && row.base_offset >= min_offset) return static_cast<int64_t>(at);
    }
    return -1;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto last = static_cast<int64_t>(size);
    for (const int64_t start : {int64_t{0}, int64_t{1}, last / 2, last, last + 5}) {
        for (const int64_t min_offset : {int64_t{-1}, int64_t{4}}) {
            const int64_t found = find_batch({data, size}, start, min_offset, kBatchBytesMax);
            REQUIRE(found == find_slowly({data, size}, start, min_offset));
        }
    }
    return 0;
}
