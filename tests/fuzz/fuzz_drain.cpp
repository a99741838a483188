// The reader, the drain and the writer over ring memory that anyone may have scribbled on.
//
// The input is what a client sent, or what someone stored in the memory; its hash decides everything else.
//
// Invariant: whatever the bytes of a ring's memory are,
//   - nothing outside of the memory is read or written;
//   - every call ends: a walk never passes the ring's capacity;
//   - every row's body lies whole inside the data area, and a good produce row holds batches with records, unless
//     they are said to be elsewhere;
//   - groups cover the rows once, in the order of their partitions;
//   - a handle that found the memory corrupt names a field and a place, and stays corrupt;
//   - reading changes no byte of the data area;
//   - in an unharmed ring, every frame that was written comes out, in order.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "batch_scan.hpp"
#include "drain.hpp"
#include "require.hpp"
#include "ring.hpp"

using namespace ringlog;

namespace {

constexpr uint64_t kCapacity = ring_layout::kCapacityMin;
constexpr size_t kMemoryBytes = ring_layout::ring_bytes(kCapacity);
constexpr uint64_t kBodyBytesMax = ring_layout::body_bytes_max(kCapacity);
constexpr uint64_t kGeneration = 7;

using Input = std::span<const uint8_t>;

// The same choices for the same input.
class Choices {
public:
    explicit Choices(Input input) : random_(hash(input)) {}
    uint64_t any() { return random_(); }
    uint64_t below(uint64_t bound) { return random_() % bound; }
    uint64_t one_of(std::initializer_list<uint64_t> values) { return values.begin()[below(values.size())]; }

private:
    static uint64_t hash(Input input) {  // FNV-1a
        uint64_t hash = 0xcbf29ce484222325;
        for (const uint8_t byte : input) hash = (hash ^ byte) * 0x100000001b3;
        return hash;
    }
    std::mt19937_64 random_;
};

// Exactly as large as the ring, so that ASan sees one byte too far.
class Memory {
public:
    Memory() { REQUIRE(RingMemory::format(bytes(), kCapacity, kGeneration) == RingAnswer::kOk); }
    std::span<std::byte> bytes() const { return std::as_writable_bytes(std::span(words_.get(), kMemoryBytes / 8)); }
    std::span<std::byte> data() const { return bytes().subspan(ring_layout::kRingHeaderBytes); }
    RingHeader& header() const { return *reinterpret_cast<RingHeader*>(words_.get()); }
    void store(size_t at, uint64_t value) const { std::memcpy(bytes().data() + at, &value, sizeof value); }

private:
    std::unique_ptr<uint64_t[]> words_ = std::make_unique<uint64_t[]>(kMemoryBytes / 8);
};

// Any bytes at any place, the header included.
void overwrite(const Memory& memory, Input input, Choices& choices) {
    const size_t at = choices.below(2) == 0 ? 0 : choices.below(kMemoryBytes);
    const auto piece = std::as_bytes(input).first(std::min(input.size(), kMemoryBytes - at));
    std::ranges::copy(piece, memory.bytes().begin() + static_cast<std::ptrdiff_t>(at));
}

// A chain of message headers whose lengths are almost right, with the input between them.
void chain(const Memory& memory, Input input, Choices& choices) {
    const uint64_t places[] = {0, kCapacity - 64, ring_layout::kPositionMax - 64, ~uint64_t{127}};
    const uint64_t start = places[choices.below(4)] + 8 * choices.below(8);
    uint64_t end = start;
    for (uint64_t links = choices.below(8); links > 0; --links) {
        const uint64_t to_end = kCapacity - end % kCapacity;
        const uint64_t bytes = choices.one_of({8, 9, 40, 8 + choices.below(kBodyBytesMax + 2), to_end, to_end + 1,
                                               choices.below(8), 0x80000008});
        const auto kind = static_cast<uint32_t>(choices.one_of({0, ring_layout::kKindPadding}));
        const auto piece = std::as_bytes(input).first(std::min<size_t>(input.size(), to_end - 8));
        std::ranges::copy(piece, memory.data().begin() + static_cast<std::ptrdiff_t>(end % kCapacity + 8));
        memory.store(ring_layout::kRingHeaderBytes + end % kCapacity, ring_layout::message_word(bytes, kind));
        end += ring_layout::aligned(bytes) % kCapacity;
    }
    memory.header().consumer_position = start;
    memory.header().producer_position = end + choices.one_of({0, 0, 0, 8, 1, kCapacity, ~uint64_t{7}});
}

std::vector<std::byte> frame_around(Input body, Choices& choices) {
    FrameHeader header{};
    header.version = static_cast<uint8_t>(choices.below(16) == 0 ? choices.any() : kFrameVersion);
    header.api_key = static_cast<uint8_t>(choices.below(4) == 0 ? choices.any() : kApiProduce);
    header.flags = static_cast<uint16_t>(choices.below(4) == 0 ? choices.any() : 0);
    header.partition = static_cast<uint32_t>(choices.one_of({0, 1, 2, kNoPartition}));
    header.body_bytes = static_cast<uint32_t>(body.size() + (choices.below(16) == 0 ? 1 : 0));
    std::vector<std::byte> frame(sizeof header + body.size());
    std::memcpy(frame.data(), &header, sizeof header);
    std::ranges::copy(std::as_bytes(body), frame.begin() + sizeof header);
    if (choices.below(16) == 0) frame.resize(choices.below(frame.size()));
    return frame;
}

// Frames as a real writer leaves them; how many.
size_t write_frames(const Memory& memory, Input input, Choices& choices) {
    memory.header().producer_position = memory.header().consumer_position = 8 * choices.below(2 * kCapacity / 8);
    memory.store(ring_layout::kRingHeaderBytes + memory.header().producer_position % kCapacity, 0);
    RingWriter<> writer;
    REQUIRE(writer.attach(memory.bytes(), kGeneration) == RingAnswer::kOk);
    const Input fitting = input.first(std::min<size_t>(input.size(), kBodyBytesMax - sizeof(FrameHeader)));
    size_t written = 0;
    for (uint64_t i = choices.below(8); i > 0; --i) {
        const Input body = choices.below(2) == 0 ? fitting : fitting.first(choices.below(fitting.size() + 1));
        const auto answer = writer.write(frame_around(body, choices), static_cast<uint32_t>(written));
        REQUIRE(answer == RingAnswer::kOk || answer == RingAnswer::kFull);
        written += answer == RingAnswer::kOk ? 1 : 0;
    }
    return written;
}

void scribble(const Memory& memory, Choices& choices) {
    for (uint64_t places = 1 + choices.below(3); places > 0; --places) {
        const uint64_t at = choices.one_of({choices.below(kMemoryBytes - 7), 8 * choices.below(kMemoryBytes / 8)});
        memory.store(at, choices.one_of({choices.any(), choices.below(4096)}));
    }
}

void check_table(const Drain& drain) {
    size_t rows = 0;
    for (const DrainGroup& group : drain.groups()) {
        REQUIRE(group.first_row == rows && group.rows > 0);
        REQUIRE(rows == 0 || drain.row(rows - 1).partition < group.partition);
        rows += group.rows;
    }
    REQUIRE(rows == drain.rows());
    for (size_t i = 0; i < drain.rows(); ++i) {
        const DrainRow& row = drain.row(i);
        REQUIRE(row.body_position >= ring_layout::kRingHeaderBytes);
        REQUIRE(row.body_position + row.body_bytes <= kMemoryBytes);
        const bool is_elsewhere = (row.flags & kFlagNear) != 0;
        REQUIRE(row.status != 0 || row.api_key != kApiProduce || is_elsewhere ||
                (row.batch_count > 0 && row.record_count > 0));
        REQUIRE(row.status != 0 || row.fault_position == 0);
    }
}

// Kinds of the messages, in the order of arrival, when the whole ring could be read.
std::vector<uint32_t> read_everything(const Memory& memory, Choices& choices) {
    std::vector<uint32_t> kinds;
    RingReader<> reader;
    RingAnswer answer = reader.attach(memory.bytes(), kGeneration);
    if (answer == RingAnswer::kCorrupt) REQUIRE(reader.fault());
    if (answer != RingAnswer::kOk) return kinds;
    const std::vector<std::byte> before(memory.data().begin(), memory.data().end());
    const uint64_t start = reader.cursor();
    const size_t messages_max = 1 + choices.below(9);
    Drain drain;
    do {
        answer = drain.run(reader, messages_max, choices.one_of({1, 500, 1 << 20}));
        check_table(drain);
        std::vector<uint32_t> arrived;
        for (size_t i = 0; i < drain.rows(); ++i) arrived.push_back(drain.row(i).kind);
        std::ranges::sort(arrived);
        kinds.insert(kinds.end(), arrived.begin(), arrived.end());
        REQUIRE(reader.cursor() - start < kCapacity);
    } while (answer == RingAnswer::kOk);
    if (!reader.announce_wait()) reader.withdraw_wait();
    if (answer == RingAnswer::kCorrupt) {
        REQUIRE(reader.fault());
        REQUIRE(reader.fault().position >= 0 && reader.fault().position < static_cast<int64_t>(kMemoryBytes));
        REQUIRE(reader.release(reader.cursor()) == RingAnswer::kCorrupt);
        REQUIRE(drain.run(reader, 1, 1) == RingAnswer::kCorrupt && drain.rows() == 0);
    } else {
        REQUIRE(reader.release(reader.cursor()) == RingAnswer::kOk);
    }
    reader.close();
    REQUIRE(std::ranges::equal(before, memory.data()));
    return kinds;
}

// Writes on, while the consumer position jumps about.
void write_on(const Memory& memory, Choices& choices) {
    memory.header().writer_state = memory.header().reader_state = 0;
    RingWriter<> writer;
    if (writer.attach(memory.bytes(), kGeneration) != RingAnswer::kOk) return;
    const std::vector<std::byte> body(kBodyBytesMax);
    RingAnswer answer = RingAnswer::kOk;
    for (int turn = 0; turn < 24 && (answer == RingAnswer::kOk || answer == RingAnswer::kFull); ++turn) {
        if (choices.below(4) == 0) {
            const uint64_t position = writer.position();
            memory.header().consumer_position = choices.one_of({position, position - 8, choices.any()});
        }
        answer = writer.write(std::span(body).first(choices.below(body.size() + 1)), 1);
        std::span<std::byte> claimed;
        if (answer == RingAnswer::kOk && writer.claim(9, claimed) == RingAnswer::kOk) {
            std::ranges::fill(claimed, std::byte{1});
            writer.commit(2);
        }
    }
    if (answer == RingAnswer::kCorrupt) REQUIRE(writer.fault());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const Input input(data, size);
    Choices choices(input);
    const Memory memory;
    switch (choices.below(4)) {
        case 0: overwrite(memory, input, choices); break;
        case 1: chain(memory, input, choices); break;
        case 2: {
            const size_t written = write_frames(memory, input, choices);
            const std::vector<uint32_t> kinds = read_everything(memory, choices);
            REQUIRE(kinds.size() == written && std::ranges::is_sorted(kinds));
            write_on(memory, choices);
            return 0;
        }
        default:
            write_frames(memory, input, choices);
            scribble(memory, choices);
    }
    read_everything(memory, choices);
    write_on(memory, choices);
    return 0;
}
