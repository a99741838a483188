// The consumer's side of a ring: walk what is published, then give it back.
//
// `next` moves a private cursor; `release` moves the consumer position, and only that gives the writer room.
// Between the two the bytes belong to the reader, who may even change them (a shard stamps offsets there).
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ring_memory.hpp"
#include "ring_probe.hpp"

namespace ringlog {

struct RingMessage {
    uint32_t kind = 0;
    uint64_t offset = 0;        // of the body, from the start of the ring's memory
    uint64_t end_position = 0;  // release up to here to give this message back
    std::span<std::byte> body;  // in place; valid until released
};

template <class Probe = NoProbe>
class RingReader {
public:
    explicit RingReader(Probe probe = {}) : probe_(probe) {}

    RingAnswer attach(std::span<std::byte> memory, uint64_t generation) noexcept {
        if (const auto answer = memory_.open(memory, generation, fault_); answer != RingAnswer::kOk) return answer;
        uint64_t consumer = 0;
        uint64_t producer = 0;
        if (const auto answer = memory_.positions(producer, consumer, fault_); answer != RingAnswer::kOk) return answer;
        if (const auto answer = memory_.attach(memory_.header().reader_state, fault_); answer != RingAnswer::kOk) {
            return answer;
        }
        released_ = cursor_ = producer_seen_ = consumer;
        return RingAnswer::kOk;
    }

    // The next message behind the cursor. `empty` when none is published; `closed` when none ever will be.
    RingAnswer next(RingMessage& message) noexcept {
        using namespace ring_layout;
        if (broken_) return RingAnswer::kCorrupt;
        if (!memory_.is_current()) return RingAnswer::kStale;
        for (;;) {
            uint64_t word = memory_.word_at(cursor_).load(std::memory_order_acquire);
            probe_.at(RingStep::kHeaderLoaded);
            if (word == 0) {
                if (!RingMemory::is_closed(memory_.header().writer_state)) return RingAnswer::kEmpty;
                // It may have published between our two looks; after the close nothing follows.
                word = memory_.word_at(cursor_).load(std::memory_order_acquire);
                if (word == 0) return RingAnswer::kClosed;
            }
            const uint64_t to_end = memory_.capacity() - memory_.place(cursor_);
            const int32_t signed_bytes = word_bytes(word);
            if (signed_bytes < static_cast<int32_t>(kMessageHeaderBytes)) {
                return corrupt("message length", memory_.offset(cursor_), "less than its header");
            }
            const auto bytes = static_cast<uint64_t>(signed_bytes);
            if (aligned(bytes) > to_end) {
                return corrupt("message length", memory_.offset(cursor_), "reaches beyond the ring's end");
            }
            const uint64_t end = cursor_ + aligned(bytes);
            if (end > producer_seen_) {
                if (const auto answer = look_at_producer(); answer != RingAnswer::kOk) return answer;
                if (end > producer_seen_) {
                    return corrupt("message length", memory_.offset(cursor_), "reaches beyond the producer position");
                }
            }
            if (word_kind(word) == kKindPadding) {
                if (bytes != to_end) {
                    return corrupt("padding length", memory_.offset(cursor_), "does not end with the ring");
                }
                cursor_ = end;
                probe_.at(RingStep::kPaddingSkipped);
                continue;
            }
            if (bytes - kMessageHeaderBytes > memory_.body_bytes_max()) {
                return corrupt("message length", memory_.offset(cursor_), "more than a message may have");
            }
            message.kind = word_kind(word);
            message.offset = memory_.offset(cursor_) + kMessageHeaderBytes;
            message.body = {memory_.at(cursor_) + kMessageHeaderBytes, bytes - kMessageHeaderBytes};
            message.end_position = end;
            cursor_ = end;
            probe_.at(RingStep::kMessageFound);
            return RingAnswer::kOk;
        }
    }

    // Gives back everything before `position`, the `end_position` of a message that `next` returned. One
    // release for a whole drain: it costs the writer a cache miss each time.
    RingAnswer release(uint64_t position) noexcept {
        if (broken_) return RingAnswer::kCorrupt;
        if (!memory_.is_current()) return RingAnswer::kStale;
        if (!ring_layout::is_aligned(position) || position < released_ || position > cursor_) {
            return RingAnswer::kMisuse;
        }
        if (position == released_) return RingAnswer::kOk;
        released_ = position;
        shared_word(memory_.header().consumer_position).store(position, std::memory_order_release);
        probe_.at(RingStep::kConsumerPositionStored);
        return RingAnswer::kOk;
    }

    // Announces that the reader is about to sleep. True: nothing is there, sleep on the doorbell. False: there
    // is something to see (a message, a close, a retirement), the announcement is withdrawn. After a wake-up
    // by anything else than the doorbell, withdraw. The fence is explained at RingWriter::take_wakeup.
    bool announce_wait() noexcept {
        if (broken_) return false;
        shared_word(memory_.header().reader_waits).store(1, std::memory_order_relaxed);
        probe_.at(RingStep::kWaitAnnounced);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        const bool nothing = memory_.word_at(cursor_).load(std::memory_order_relaxed) == 0 &&
                             !RingMemory::is_closed(memory_.header().writer_state) && memory_.is_current();
        if (!nothing) withdraw_wait();
        return nothing;
    }

    void withdraw_wait() noexcept {
        shared_word(memory_.header().reader_waits).store(0, std::memory_order_relaxed);
        probe_.at(RingStep::kWaitWithdrawn);
    }

    // Nothing will be read any more: the writer gets `closed` instead of filling the ring.
    void close() noexcept {
        if (memory_.is_current()) RingMemory::close(memory_.header().reader_state);
        probe_.at(RingStep::kReaderClosed);
    }

    const RingMemory& memory() const noexcept { return memory_; }
    const Fault& fault() const noexcept { return fault_; }
    uint64_t cursor() const noexcept { return cursor_; }
    uint64_t released() const noexcept { return released_; }

private:
    RingAnswer look_at_producer() noexcept {
        const uint64_t producer = shared_word(memory_.header().producer_position).load(std::memory_order_acquire);
        if (!ring_layout::is_aligned(producer) || producer < producer_seen_ ||
            producer - released_ > memory_.capacity() - ring_layout::kWordBytes) {
            return corrupt("producer position", offsetof(RingHeader, producer_position),
                           "unaligned, moved back, or a lap ahead");
        }
        producer_seen_ = producer;
        return RingAnswer::kOk;
    }

    RingAnswer corrupt(const char* field, uint64_t position, const char* reason) noexcept {
        broken_ = true;
        fault_ = {field, static_cast<int64_t>(position), reason};
        return RingAnswer::kCorrupt;
    }

    RingMemory memory_;
    Fault fault_;
    uint64_t released_ = 0;       // as the writer sees it
    uint64_t cursor_ = 0;         // >= released_: walked up to here
    uint64_t producer_seen_ = 0;  // >= cursor_ once a message was found
    bool broken_ = false;
    [[no_unique_address]] Probe probe_;
};

}  // namespace ringlog
