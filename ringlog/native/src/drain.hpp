// The drain: one call walks what a ring holds, checks every frame in place, and groups them by partition.
//
// Messages stay in the ring until the reader releases them. Inside a group rows are in the order of arrival;
// groups are in the order of their partition.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "drain_frame.hpp"
#include "drain_layout.hpp"
#include "ring_reader.hpp"

namespace ringlog {

class Drain {
public:
    // Walks at most `messages_max` messages, and no further one once `bytes_max` bytes were walked, or named by those
    // whose batches lie elsewhere. The answer
    // is what ended the walk: `ok` for a bound, otherwise what the reader said; the rows before it stand.
    template <class Reader>
    RingAnswer run(Reader& reader, size_t messages_max, uint64_t bytes_max) {
        rows_.clear();
        groups_.clear();
        order_.clear();
        uint64_t bytes = 0;
        RingAnswer answer = RingAnswer::kOk;
        RingMessage message;
        while (rows_.size() < messages_max && bytes < bytes_max) {
            answer = reader.next(message);
            if (answer != RingAnswer::kOk) break;
            rows_.push_back(describe_frame(message));
            bytes += message.body.size() + named_bytes(rows_.back(), message);
        }
        group();
        return answer;
    }

    size_t rows() const noexcept { return rows_.size(); }
    // Row i in the order of the groups.
    const DrainRow& row(size_t i) const noexcept { return rows_[order_[i] & 0xffffffff]; }
    const std::vector<DrainGroup>& groups() const noexcept { return groups_; }

private:
    // Sorts partition and place of arrival as one number: equal partitions keep their order.
    void group() {
        order_.reserve(rows_.size());
        for (size_t i = 0; i < rows_.size(); ++i) {
            order_.push_back(uint64_t{rows_[i].partition} << 32 | static_cast<uint32_t>(i));
        }
        if (!std::ranges::is_sorted(order_)) std::ranges::sort(order_);
        for (size_t i = 0; i < order_.size(); ++i) {
            const auto partition = static_cast<uint32_t>(order_[i] >> 32);
            if (groups_.empty() || groups_.back().partition != partition) {
                groups_.push_back({partition, static_cast<uint32_t>(i), 0});
            }
            ++groups_.back().rows;
        }
    }

    std::vector<DrainRow> rows_;     // in the order of arrival
    std::vector<uint64_t> order_;    // partition << 32 | index into rows_
    std::vector<DrainGroup> groups_;
};

}  // namespace ringlog
