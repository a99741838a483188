// Finds the next whole batch in any bytes: what recovery asks for behind a fault.
//
// Bytes of users may look like any number of overlapping headers, each of them claiming megabytes. A CRC
// over each claim would take quadratic time, so the CRCs of prefixes are kept at regular marks, and the
// CRC of any range follows from two of them.
#include <algorithm>
#include <cstring>
#include <vector>

#include "batch_scan.hpp"
#include "crc32c.hpp"

namespace ringlog {
namespace {

class RangeCrcs {
public:
    RangeCrcs(Bytes data, size_t begin) : data_(data), begin_(begin), marks_{0} {}

    uint32_t of(size_t from, size_t to) {
        return crc32c_of_suffix(of_prefix(from), of_prefix(to), to - from);
    }

private:
    static constexpr size_t kMarkBytes = 16 * 1024;

    uint32_t of_prefix(size_t end) {
        const size_t size = end - begin_;
        const size_t mark = size / kMarkBytes;
        while (marks_.size() <= mark) {
            const size_t at = begin_ + (marks_.size() - 1) * kMarkBytes;
            marks_.push_back(crc32c(data_.data + at, kMarkBytes, marks_.back()));
        }
        return crc32c(data_.data + begin_ + mark * kMarkBytes, size % kMarkBytes, marks_[mark]);
    }

    Bytes data_;
    size_t begin_;
    std::vector<uint32_t> marks_;  // marks_[k]: CRC of the k · kMarkBytes bytes from begin_ on
};

}  // namespace

int64_t find_batch(Bytes data, int64_t start, int64_t min_offset, int64_t bytes_max) {
    if (static_cast<size_t>(start) >= data.size) return -1;
    ScanRules rules;
    rules.level = Level::kHeaders;
    rules.bytes_max = bytes_max;
    rules.expected_offset = std::max<int64_t>(min_offset, 0);
    rules.dense = false;
    RangeCrcs crcs(data, static_cast<size_t>(start));

    size_t position = static_cast<size_t>(start);
    while (data.size - position >= at::kRecords) {
        // The magic byte is the one constant of a header: memchr leaps over zeros and most else.
        const uint8_t* const search = data.data + position + at::kMagic;
        const size_t search_size = data.size - position - at::kMagic;
        const auto* const magic = static_cast<const uint8_t*>(std::memchr(search, kMagic2, search_size));
        if (magic == nullptr) return -1;
        position = static_cast<size_t>(magic - data.data) - at::kMagic;

        BatchCursor cursor({data.data + position, data.size - position}, rules);
        BatchRow row;
        if (cursor.next(row)) {
            const size_t end = position + static_cast<size_t>(row.length);
            if (crcs.of(position + kCrcBegin, end) == row.crc) return static_cast<int64_t>(position);
        }
        ++position;
    }
    return -1;
}

}  // namespace ringlog
