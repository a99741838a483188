// Fuzzes the reader, the drain and the writer over ring memory that anyone may have scribbled on.
//
// Invariant: whatever the bytes of a ring's memory are,
//   - no call reads or writes outside of the memory (ASan) or breaks a rule of the language (UBSan);
//   - every call ends: a walk never passes the ring's capacity;
//   - every row's body lies whole inside the data area, and a row that is `ok` and a produce holds a batch;
//   - groups cover the rows once, in order of partition;
//   - a handle that found the memory corrupt names field and place, and says so for ever;
//   - reading changes nothing but the consumer position and the reader's own words.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "batch_scan.hpp"
#include "drain.hpp"
#include "ring.hpp"

using namespace ringlog;

namespace {

constexpr uint64_t kCapacity = ring_layout::kCapacityMin;
constexpr size_t kMemoryBytes = ring_layout::ring_bytes(kCapacity);
constexpr uint64_t kGeneration = 7;

void require(bool holds) {
    if (!holds) std::abort();
}

// Takes values off the front of the input; zeros when it is used up.
class Input {
public:
    Input(const uint8_t* data, size_t size) : left_(data, size) {}

    template <class T>
    T take() {
        T value{};
        const size_t bytes = std::min(sizeof value, left_.size());
        if (bytes != 0) std::memcpy(&value, left_.data(), bytes);
        left_ = left_.subspan(bytes);
        return value;
    }
    std::span<const uint8_t> take_bytes(size_t bytes) {
        const auto taken = left_.first(std::min(bytes, left_.size()));
        left_ = left_.subspan(taken.size());
        return taken;
    }
    bool empty() const { return left_.empty(); }

private:
    std::span<const uint8_t> left_;
};

// Exactly as large as the ring, so that ASan sees one byte too far.
struct Memory {
    std::unique_ptr<uint64_t[]> words = std::make_unique<uint64_t[]>(kMemoryBytes / 8);
    std::span<std::byte> bytes() const { return std::as_writable_bytes(std::span(words.get(), kMemoryBytes / 8)); }
};

// A produce frame around bytes of the input, with the length and CRC of its one batch made right, so that the
// checks behind them are reached too.
std::vector<uint8_t> produce_frame(Input& input) {
    const auto content = input.take_bytes(input.take<uint8_t>());
    std::vector<uint8_t> frame(sizeof(FrameHeader) + content.size());
    FrameHeader header{};
    header.version = kFrameVersion;
    header.api_key = kApiProduce;
    header.partition = input.take<uint8_t>();
    header.body_bytes = static_cast<uint32_t>(content.size());
    std::memcpy(frame.data(), &header, sizeof header);
    std::ranges::copy(content, frame.begin() + sizeof header);
    if (content.size() >= at::kRecords) {
        uint8_t* batch = frame.data() + sizeof header;
        store_big(batch + at::kBaseOffset, int64_t{0});
        store_big(batch + at::kBatchLength, static_cast<int32_t>(content.size() - kLengthPrefixBytes));
        store_big(batch + at::kLeaderEpoch, int32_t{-1});
        batch[at::kMagic] = kMagic2;
        seal_batch(batch, content.size());
    }
    return frame;
}

// Messages as a real writer leaves them, at positions that the input chooses.
void fill_by_writer(const Memory& memory, Input& input) {
    auto& header = *reinterpret_cast<RingHeader*>(memory.bytes().data());
    header.producer_position = header.consumer_position = uint64_t{input.take<uint16_t>()} * 8;
    std::memset(memory.bytes().data() + ring_layout::kRingHeaderBytes, 0, kCapacity);
    RingWriter<> writer;
    require(writer.attach(memory.bytes(), kGeneration) == RingAnswer::kOk);
    for (int i = input.take<uint8_t>() % 16; i > 0; --i) {
        const uint8_t choice = input.take<uint8_t>();
        const std::vector<uint8_t> frame = produce_frame(input);
        const auto whole = std::as_bytes(std::span(frame));
        const auto answer = writer.write(choice % 4 == 0 ? whole.first(choice % whole.size()) : whole, choice);
        require(answer == RingAnswer::kOk || answer == RingAnswer::kFull);
    }
}

void scribble(const Memory& memory, Input& input) {
    while (!input.empty()) {
        const size_t at = input.take<uint16_t>() % (kMemoryBytes - 7);
        const uint64_t value = input.take<uint64_t>();
        std::memcpy(memory.bytes().data() + at, &value, sizeof value);
    }
}

void check_table(const Drain& drain) {
    size_t rows = 0;
    for (const DrainGroup& group : drain.groups()) {
        require(group.first_row == rows && group.rows > 0);
        rows += group.rows;
    }
    require(rows == drain.rows());
    for (size_t i = 0; i < drain.rows(); ++i) {
        const DrainRow& row = drain.row(i);
        require(row.body_position >= ring_layout::kRingHeaderBytes);
        require(row.body_position + row.body_bytes <= kMemoryBytes);
        require(i == 0 || drain.row(i - 1).partition <= row.partition);
        if (row.status == 0 && row.api_key == kApiProduce) require(row.batch_count > 0 && row.record_count > 0);
    }
}

void read_everything(const Memory& memory) {
    RingReader<> reader;
    RingAnswer answer = reader.attach(memory.bytes(), kGeneration);
    if (answer == RingAnswer::kCorrupt) require(reader.fault().field != nullptr);
    if (answer != RingAnswer::kOk) return;
    const std::vector<std::byte> before(memory.bytes().begin() + ring_layout::kRingHeaderBytes, memory.bytes().end());
    const uint64_t start = reader.cursor();
    Drain drain;
    do {
        answer = drain.run(reader, 3, 1 << 20);
        check_table(drain);
        require(reader.cursor() - start <= kCapacity);
    } while (answer == RingAnswer::kOk);
    reader.announce_wait();
    reader.withdraw_wait();
    if (answer == RingAnswer::kCorrupt) {
        require(reader.fault().field != nullptr);
        require(reader.fault().position >= 0 && reader.fault().position < static_cast<int64_t>(kMemoryBytes));
        require(reader.release(reader.cursor()) == RingAnswer::kCorrupt);
        require(drain.run(reader, 1, 1) == RingAnswer::kCorrupt && drain.rows() == 0);
    } else {
        require(reader.release(reader.cursor()) == RingAnswer::kOk);
    }
    reader.close();
    require(std::ranges::equal(before, memory.bytes().subspan(ring_layout::kRingHeaderBytes)));
}

// Writes until the ring is full or broken, while its consumer position jumps about.
void write_on(const Memory& memory, Input input) {
    auto& header = *reinterpret_cast<RingHeader*>(memory.bytes().data());
    header.writer_state = header.reader_state = 0;
    RingWriter<> writer;
    if (writer.attach(memory.bytes(), kGeneration) != RingAnswer::kOk) return;
    const std::vector<std::byte> body(ring_layout::body_bytes_max(kCapacity));
    RingAnswer answer = RingAnswer::kOk;
    for (int turn = 0; turn < 64 && (answer == RingAnswer::kOk || answer == RingAnswer::kFull); ++turn) {
        if (turn % 8 == 7) header.consumer_position = input.take<uint64_t>();
        answer = writer.write(std::span(body).first(input.take<uint16_t>() % (body.size() + 1)), 1);
        std::span<std::byte> claimed;
        if (answer == RingAnswer::kOk && writer.claim(9, claimed) == RingAnswer::kOk) {
            std::ranges::fill(claimed, std::byte{1});
            writer.commit(2);
        }
    }
    if (answer == RingAnswer::kCorrupt) require(writer.fault().field != nullptr);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Input input(data, size);
    const Memory memory;
    require(RingMemory::format(memory.bytes(), kCapacity, kGeneration) == RingAnswer::kOk);
    switch (input.take<uint8_t>() % 3) {
        case 0:  // any bytes at all
            std::ranges::copy(std::as_bytes(input.take_bytes(kMemoryBytes)), memory.bytes().begin());
            break;
        case 1: {  // a ring's header, any data
            auto& header = *reinterpret_cast<RingHeader*>(memory.bytes().data());
            header.consumer_position = input.take<uint64_t>();
            header.producer_position = header.consumer_position + input.take<uint16_t>();
            const auto bytes = std::as_bytes(input.take_bytes(kCapacity));
            const uint64_t start = header.consumer_position % kCapacity;
            for (size_t i = 0; i < bytes.size(); ++i) {
                memory.bytes()[ring_layout::kRingHeaderBytes + (start + i) % kCapacity] = bytes[i];
            }
            break;
        }
        default:  // a ring in use, damaged in some places
            fill_by_writer(memory, input);
            scribble(memory, input);
    }
    read_everything(memory);
    write_on(memory, input);
    return 0;
}
