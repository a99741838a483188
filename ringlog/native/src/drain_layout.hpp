// What a drain returns: a row for each frame, a group for each partition. NumPy reads these structs as they
// lie in memory; ringlog/ring/drain.py has the dtypes, and a test holds the two equal.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ringlog {

// 0, or why a frame must be refused.
enum class DrainStatus : uint16_t {
    kOk = 0,
    kFrameShort = 1,      // the message is smaller than a frame's header: no field of the row can be trusted
    kFrameVersion = 2,    // not a version that this code knows
    kFrameBodyBytes = 3,  // body_bytes is not what the message holds
    kNoBatch = 4,         // produce without a batch
    kBadBatch = 5,        // a batch's length, CRC or structure is wrong
    kMixedProducers = 6,  // batches of several producers, or with a gap in their sequences
};

// Groups of frames that name no partition come last.
constexpr uint32_t kNoPartition = 0xffffffff;

struct DrainRow {
    uint64_t correlation;
    uint64_t session;
    uint64_t body_position;  // offset of the body in the ring's memory
    int64_t producer_id;     // of the first batch; -1: none
    int64_t max_timestamp;   // the largest of all batches; -1 without a batch
    uint32_t partition;
    uint32_t kind;  // of the ring message
    uint32_t deadline_ms;
    uint32_t body_bytes;  // as the message has them, whatever the header says
    uint32_t batch_count;
    uint32_t record_count;    // of all batches
    int32_t base_sequence;    // of the first batch; -1: none
    int32_t last_sequence;    // of the last batch's last record; -1: none
    uint32_t fault_position;  // byte of the frame, its header included, where the wrong field stands
    int16_t producer_epoch;   // of the first batch; -1: none
    uint16_t flags;
    uint16_t attributes_any;  // those of all batches, or-ed: for bits that no batch may have
    uint16_t status;          // a DrainStatus
    uint8_t api_key;
    uint8_t version;
    uint16_t zero;
};
static_assert(sizeof(DrainRow) == 88 && offsetof(DrainRow, zero) == 86);

struct DrainGroup {
    uint32_t partition;
    uint32_t first_row;
    uint32_t rows;
};
static_assert(sizeof(DrainGroup) == 12);

}  // namespace ringlog
