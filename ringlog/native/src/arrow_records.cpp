// Lays out the columns of records in one piece of memory, and the structures that tell Arrow of them.
//
//   block   │ partition │ offset │ timestamp │ key: valid, offsets │ value: … │ headers: … │ bytes of values, keys, …
//
// Arrow keeps a batch as long as any of its columns, so one piece costs nobody anything.
#include "arrow_records.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>

namespace ringlog {
namespace {

constexpr int64_t kBytesMax = std::numeric_limits<int32_t>::max();
constexpr size_t kAlignment = 64;  // what Arrow advises

// Hands out aligned parts of one piece of memory, which is taken when all are known.
class Block {
public:
    size_t add(int64_t bytes) noexcept {
        const size_t at = size_;
        size_ += (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
        return at;
    }

    void take() {
        memory_ = std::make_unique_for_overwrite<uint8_t[]>(size_ + kAlignment);
        void* start = memory_.get();
        size_t room = size_ + kAlignment;
        start_ = static_cast<uint8_t*>(std::align(kAlignment, size_, start, room));
    }

    template <class T = uint8_t>
    T* at(size_t position) const noexcept {
        return reinterpret_cast<T*>(start_ + position);
    }

private:
    std::unique_ptr<uint8_t[]> memory_;
    uint8_t* start_ = nullptr;
    size_t size_ = 0;
};

// Where the parts of a column of byte strings lie.
struct BytesPlace {
    BytesPlace(Block& block, const ByteTotals& needed)
        : totals(needed),
          offsets(block.add((needed.count + 1) * int64_t{sizeof(int32_t)})),
          valid(block.add(needed.nulls > 0 ? (needed.count + 7) / 8 : 0)),
          data(block.add(needed.bytes)) {}

    ByteSink sink(const Block& block) const noexcept {
        ByteSink made{block.at<int32_t>(offsets), block.at(data), nullptr, totals};
        if (totals.nulls > 0) {
            made.valid = block.at(valid);
            std::fill_n(made.valid, (totals.count + 7) / 8, uint8_t{0});
        }
        return made;
    }

    ByteTotals totals;
    size_t offsets;
    size_t valid;
    size_t data;
};

// Everything that the structures of one batch point at. Each structure that is not released holds it: Arrow may move
// single ones out, and release them whenever and on whatever thread it likes.
struct Holder {
    Block block;
    std::shared_ptr<const RepeatedText> topic;
    std::array<ArrowArray, 10> arrays{};
    std::array<ArrowArray*, 10> pointers{};
    std::array<std::array<const void*, 3>, 11> buffers{};
    std::atomic<int> holds{0};
};

void release(ArrowArray* array) {
    for (int64_t i = 0; i < array->n_children; ++i) {
        ArrowArray* const child = array->children[i];
        if (child->release != nullptr) child->release(child);
    }
    auto* const holder = static_cast<Holder*>(array->private_data);
    array->release = nullptr;
    if (holder->holds.fetch_sub(1, std::memory_order_acq_rel) == 1) delete holder;
}

// Fills in structures, each with the next buffers and children of the holder. Children come behind their parents.
class Tree {
public:
    explicit Tree(Holder& holder) noexcept : holder_(holder) {}

    // The place for the next children of an array.
    ArrowArray** children(int64_t count) noexcept {
        ArrowArray** const first = holder_.pointers.data() + used_;
        for (int64_t i = 0; i < count; ++i, ++used_) holder_.pointers[used_] = &holder_.arrays[used_];
        return first;
    }

    void fill(ArrowArray& array, int64_t length, int64_t nulls, std::initializer_list<const void*> buffers,
              int64_t child_count = 0, ArrowArray** children = nullptr) noexcept {
        auto& kept = holder_.buffers[filled_++];
        std::copy(buffers.begin(), buffers.end(), kept.begin());
        array = {length,       nulls,      0,       static_cast<int64_t>(buffers.size()),
                 child_count,  kept.data(), children, nullptr,
                 &release,     &holder_};
        holder_.holds.fetch_add(1, std::memory_order_relaxed);
    }

    void fill(ArrowArray& array, const ByteSink& sink) noexcept {
        fill(array, sink.totals.count, sink.totals.nulls, {sink.valid, sink.offsets, sink.data});
    }

private:
    Holder& holder_;
    size_t used_ = 0;
    size_t filled_ = 0;
};

}  // namespace

RepeatedText::RepeatedText(const std::string& text, int64_t count) {
    offsets_.reserve(static_cast<size_t>(count) + 1);
    data_.reserve(static_cast<size_t>(count) * text.size());
    offsets_.push_back(0);
    for (int64_t i = 0; i < count; ++i) {
        data_ += text;
        offsets_.push_back(static_cast<int32_t>(data_.size()));
    }
}

bool RepeatedText::fits(const std::string& text, int64_t count) noexcept {
    return count < kBytesMax && static_cast<int64_t>(text.size()) <= kBytesMax / std::max<int64_t>(count, 1);
}

bool fits_arrow(const Totals& totals) noexcept {
    const auto fits = [](const ByteTotals& one) { return one.bytes <= kBytesMax && one.count < kBytesMax; };
    return fits(totals.keys) && fits(totals.values) && fits(totals.header_keys) && fits(totals.header_values);
}

bool make_arrow_records(const std::vector<Section>& sections, const Totals& totals, const RecordOrigin& origin,
                        ArrowArray& array) {
    const int64_t records = totals.records();
    auto owned = std::make_unique<Holder>();
    Holder& holder = *owned;
    Block& block = holder.block;
    holder.topic = origin.topic;

    const size_t partition_place = block.add(records * int64_t{sizeof(int32_t)});
    const size_t offset_place = block.add(records * int64_t{sizeof(int64_t)});
    const size_t timestamp_place = block.add(records * int64_t{sizeof(int64_t)});
    const size_t headers_place = block.add((records + 1) * int64_t{sizeof(int32_t)});
    const BytesPlace keys_place(block, totals.keys);
    const BytesPlace values_place(block, totals.values);
    const BytesPlace header_keys_place(block, totals.header_keys);
    const BytesPlace header_values_place(block, totals.header_values);
    block.take();

    auto* const partitions = block.at<int32_t>(partition_place);
    std::fill_n(partitions, records, origin.partition);
    const ColumnSinks sinks{records,
                            block.at<int64_t>(offset_place),
                            block.at<int64_t>(timestamp_place),
                            keys_place.sink(block),
                            values_place.sink(block),
                            block.at<int32_t>(headers_place),
                            header_keys_place.sink(block),
                            header_values_place.sink(block)};
    if (!fill_sections(sections, sinks)) return false;

    Tree tree(holder);
    ArrowArray** const columns = tree.children(7);
    ArrowArray** const items = tree.children(1);
    ArrowArray** const pair = tree.children(2);
    tree.fill(array, records, 0, {nullptr}, 7, columns);
    tree.fill(*columns[0], records, 0, {nullptr, holder.topic->offsets(), holder.topic->data()});
    tree.fill(*columns[1], records, 0, {nullptr, partitions});
    tree.fill(*columns[2], records, 0, {nullptr, sinks.offsets});
    tree.fill(*columns[3], records, 0, {nullptr, sinks.timestamps});
    tree.fill(*columns[4], sinks.keys);
    tree.fill(*columns[5], sinks.values);
    tree.fill(*columns[6], records, 0, {nullptr, sinks.header_offsets}, 1, items);
    tree.fill(*items[0], totals.header_keys.count, 0, {nullptr}, 2, pair);
    tree.fill(*pair[0], sinks.header_keys);
    tree.fill(*pair[1], sinks.header_values);
    static_cast<void>(owned.release());
    return true;
}

}  // namespace ringlog
