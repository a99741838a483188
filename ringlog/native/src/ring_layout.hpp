// The bytes of a ring in shared memory: what lies where, and how a message looks. No behaviour.
//
// All words are little-endian and naturally aligned; the memory must start at a multiple of 8 bytes.
//
//   byte
//      0  +----------------------------------------------------------+
//         | u64 magic  "RLOGRING"                                    |  line 0: written at creation, at attach
//      8  | u32 layout version         | u32 zero                    |  and at close, so both sides keep it in
//     16  | u64 capacity, bytes of the data area, a power of two     |  their caches
//     24  | u64 generation, never 0; 0 once the ring was retired     |
//     32  | u32 writer state           | u32 reader state            |  a RingSide each
//    128  +----------------------------------------------------------+
//         | u64 producer position                                    |  line 1: the writer's
//    256  +----------------------------------------------------------+
//         | u64 consumer position                                    |  line 2: the reader's
//    384  +----------------------------------------------------------+
//         | u32 reader waits: 1 while it sleeps, or is about to      |  line 3: the doorbell's
//    512  +----------------------------------------------------------+
//         | data, `capacity` bytes                                   |
//         +----------------------------------------------------------+
//
// Positions count bytes since creation and never wrap (2^62 bytes are a century at 1 GB/s); a position's place
// in the data area is `position & (capacity - 1)`. Both are multiples of 8, and always
//
//     consumer position <= producer position <= consumer position + capacity - 8
//
// A message starts at a multiple of 8 and is contiguous:
//
//      0  +--------------+--------------+
//         | i32 bytes    | u32 kind     |  one 64-bit word, stored in one go, last, with release order
//      8  +--------------+--------------+
//         | body, bytes - 8 of it, then  |
//         | up to 7 bytes of any value   |
//         +------------------------------+
//
// `bytes` counts header and body, so it is never 0 for a message: a zero word means "nothing yet". The
// writer zeroes the word behind a message before it publishes the message, and keeps those 8 bytes free.
// Where a message does not fit before the end of the data area, a message of kind kKindPadding fills it up
// exactly, and the message starts at place 0; the two are published together.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ringlog {

static_assert(std::endian::native == std::endian::little, "ring words are stored as the CPU has them");

namespace ring_layout {

inline constexpr uint64_t kMagic = 0x474e4952474f4c52;  // "RLOGRING"
inline constexpr uint32_t kVersion = 1;

// Two x86-64 lines, since the hardware fetches them in pairs; one line of the larger ARM64 cores.
inline constexpr size_t kLineBytes = 128;

inline constexpr uint64_t kCapacityMin = uint64_t{4} << 10;
inline constexpr uint64_t kCapacityMax = uint64_t{1} << 30;

// A side does not attach beyond this, so sums of positions and lengths cannot overflow.
inline constexpr uint64_t kPositionMax = uint64_t{1} << 62;

inline constexpr uint64_t kWordBytes = 8;
inline constexpr uint64_t kMessageHeaderBytes = kWordBytes;
inline constexpr uint32_t kKindPadding = 0xffffffff;

// A quarter of the ring for header and body together. A message then fits into an empty ring wherever it
// starts, padding included, so FULL always means "later" and never "not in this ring".
constexpr uint64_t body_bytes_max(uint64_t capacity) { return capacity / 4 - kMessageHeaderBytes; }

constexpr uint64_t aligned(uint64_t bytes) { return (bytes + kWordBytes - 1) & ~(kWordBytes - 1); }
constexpr bool is_aligned(uint64_t position) { return position % kWordBytes == 0; }

constexpr bool is_capacity(uint64_t bytes) {
    return std::has_single_bit(bytes) && bytes >= kCapacityMin && bytes <= kCapacityMax;
}

constexpr uint64_t message_word(uint64_t bytes, uint32_t kind) {
    return (uint64_t{kind} << 32) | (bytes & 0xffffffff);
}
constexpr int32_t word_bytes(uint64_t word) { return static_cast<int32_t>(word & 0xffffffff); }
constexpr uint32_t word_kind(uint64_t word) { return static_cast<uint32_t>(word >> 32); }

}  // namespace ring_layout

// One side of a ring, in the life of one generation: it is attached once and closed once. A second writer
// or reader would break the ring in ways that no check can see, and the successor of a dead one cannot know
// what the dead one was about to do: it gets a new generation.
enum class RingSide : uint32_t { kNeverAttached = 0, kAttached = 1, kClosed = 2 };

struct RingHeader {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t zero;
    uint64_t capacity;
    uint64_t generation;
    uint32_t writer_state;
    uint32_t reader_state;
    std::byte fill_0[ring_layout::kLineBytes - 40];
    uint64_t producer_position;
    std::byte fill_1[ring_layout::kLineBytes - 8];
    uint64_t consumer_position;
    std::byte fill_2[ring_layout::kLineBytes - 8];
    uint32_t reader_waits;
    std::byte fill_3[ring_layout::kLineBytes - 4];
};

namespace ring_layout {

inline constexpr size_t kRingHeaderBytes = sizeof(RingHeader);
constexpr uint64_t ring_bytes(uint64_t capacity) { return kRingHeaderBytes + capacity; }

static_assert(offsetof(RingHeader, capacity) == 16 && offsetof(RingHeader, generation) == 24);
static_assert(offsetof(RingHeader, writer_state) == 32 && offsetof(RingHeader, reader_state) == 36);
static_assert(offsetof(RingHeader, producer_position) == 128);
static_assert(offsetof(RingHeader, consumer_position) == 256);
static_assert(offsetof(RingHeader, reader_waits) == 384);
static_assert(kRingHeaderBytes == 512);
// Twice the largest message, less than one word of it overlapping: see body_bytes_max.
static_assert(2 * (kMessageHeaderBytes + body_bytes_max(kCapacityMin)) <= kCapacityMin);
// A length is a positive i32.
static_assert(kCapacityMax <= 0x7fffffff);

}  // namespace ring_layout
}  // namespace ringlog
