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

enum class RingStep : std::uint8_t {
    // writer
    room_found,
    body_word_copied,
    body_copied,
    inner_header_stored,
    next_header_zeroed,
    producer_position_stored,
    message_published,
    wakeup_taken,
    writer_closed,
    // reader
    header_loaded,
    padding_skipped,
    message_found,
    consumer_position_stored,
    wait_announced,
    wait_withdrawn,
    reader_closed,
};

struct NoProbe {
    void at(RingStep) noexcept {}
    void copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
        if (bytes != 0) std::memcpy(to, from, bytes);  // an empty span may carry a null pointer
    }
};

}  // namespace ringlog
