// The points inside a ring operation at which a test may stop the world.
//
// Writers and readers are templates over a probe. In production it is NoProbe, which compiles to nothing; in
// the litmus tests it kills the process at a chosen step, and copies bodies word by word so that a copy can
// be cut in half.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ringlog {

enum class RingStep : uint8_t {
    // writer
    kRoomFound,
    kBodyWordCopied,
    kBodyCopied,
    kInnerHeaderStored,
    kNextHeaderZeroed,
    kProducerPositionStored,
    kMessagePublished,
    kWakeupTaken,
    kWriterClosed,
    // reader
    kHeaderLoaded,
    kPaddingSkipped,
    kMessageFound,
    kConsumerPositionStored,
    kWaitAnnounced,
    kWaitWithdrawn,
    kReaderClosed,
};

struct NoProbe {
    void at(RingStep) noexcept {}
    void copy(std::byte* to, const std::byte* from, size_t bytes) noexcept {
        if (bytes != 0) std::memcpy(to, from, bytes);  // an empty span may carry a null pointer
    }
};

}  // namespace ringlog
