// Records as an Arrow array of structs, in memory of its own: nothing of it is Python's, so whoever lets go of it last
// needs no interpreter for that.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "arrow_abi.hpp"
#include "record_decode.hpp"

namespace ringlog {

// A text, many times over: the column of the topic, which batches share as long as it is long enough for them.
class RepeatedText {
public:
    // `count` times the text must not take more than 2 GiB.
    RepeatedText(const std::string& text, int64_t count);

    static bool fits(const std::string& text, int64_t count) noexcept;

    int64_t count() const noexcept { return static_cast<int64_t>(offsets_.size()) - 1; }
    const int32_t* offsets() const noexcept { return offsets_.data(); }
    const char* data() const noexcept { return data_.data(); }

private:
    std::vector<int32_t> offsets_;
    std::string data_;
};

// What the columns of every batch begin with.
struct RecordOrigin {
    std::shared_ptr<const RepeatedText> topic;  // at least as long as there are records
    int32_t partition;
};

// Whether every column of so many bytes can be told by offsets of 32 bits.
bool fits_arrow(const Totals& totals) noexcept;

// Columns of sections that were measured: topic, partition, offset, timestamp, key, value, headers. `array` is the
// caller's to release. False when the bytes have changed since; then there is nothing to release.
bool make_arrow_records(const std::vector<Section>& sections, const Totals& totals, const RecordOrigin& origin,
                        ArrowArray& array);

}  // namespace ringlog
