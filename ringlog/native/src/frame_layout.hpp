// The header of a frame: the first 32 bytes of every ring message that carries a request or a reply.
//
// All integers are little-endian.
//
//    0  version       u8     1
//    1  api_key       u8     0: produce; others are opaque to native code
//    2  flags         u16    of the api
//    4  partition     u32    a node-wide partition id
//    8  correlation   u64    chosen by the client, returned with the reply
//   16  session       u64    stamped by the network process: what a client writes here counts for nothing
//   24  deadline_ms   u32    patience of the client when it sent the frame
//   28  body_bytes    u32    bytes that follow, exactly to the end of the message
//   32  body          …      produce: whole record batches v2 for that one partition, at least one; with kFlagNear
//                            where they lie in a client's memory instead (ringlog/net/near.py)
//
// The Python twin is ringlog/ring/frame.py; a test holds the two equal.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ringlog {

struct FrameHeader {
    uint8_t version;
    uint8_t api_key;
    uint16_t flags;
    uint32_t partition;
    uint64_t correlation;
    uint64_t session;
    uint32_t deadline_ms;
    uint32_t body_bytes;
};
static_assert(sizeof(FrameHeader) == 32);
static_assert(offsetof(FrameHeader, partition) == 4 && offsetof(FrameHeader, correlation) == 8);
static_assert(offsetof(FrameHeader, session) == 16 && offsetof(FrameHeader, body_bytes) == 28);

constexpr uint8_t kFrameVersion = 1;
constexpr uint8_t kApiProduce = 0;
constexpr uint16_t kFlagNear = 1 << 2;
constexpr size_t kNearBytesAt = 8;  // in the body of a frame with kFlagNear: how much lies elsewhere, u32

}  // namespace ringlog
