// The producer's side of a ring: claim, commit, abort; write one; write many.
//
// How a message becomes visible: its body and every header but the first of what is published together are
// stored first; then the word behind them is zeroed; then the producer position moves; and last, with release
// order, the first header. The reader stops at a zero word, so until that last store it sees nothing, and
// after it everything. A writer killed anywhere leaves either nothing or whole messages. A claim alone
// changes no word that the reader looks at, so an abort has nothing to undo.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ring_memory.hpp"
#include "ring_probe.hpp"

namespace ringlog {

template <class Probe = NoProbe>
class RingWriter {
public:
    explicit RingWriter(Probe probe = {}) : probe_(probe) {}

    RingAnswer attach(std::span<std::byte> memory, uint64_t generation) noexcept {
        if (const auto answer = memory_.open(memory, generation, fault_); answer != RingAnswer::kOk) return answer;
        uint64_t consumer = 0;
        uint64_t producer = 0;
        if (const auto answer = memory_.positions(producer, consumer, fault_); answer != RingAnswer::kOk) return answer;
        if (producer - consumer > memory_.capacity() - ring_layout::kWordBytes) {
            return corrupt("producer position", offsetof(RingHeader, producer_position), "a lap ahead of its reader");
        }
        if (memory_.word_at(producer).load(std::memory_order_relaxed) != 0) {
            return corrupt("message header", memory_.offset(producer), "not zero at the producer position");
        }
        if (const auto answer = memory_.attach(memory_.header().writer_state, fault_); answer != RingAnswer::kOk) {
            return answer;
        }
        published_ = end_ = producer;
        consumer_seen_ = consumer;
        return RingAnswer::kOk;
    }

    // Room for one message. The caller fills `body`, then commits or aborts; until then it owns those bytes.
    RingAnswer claim(size_t body_bytes, std::span<std::byte>& body) noexcept {
        if (claimed_) return RingAnswer::kMisuse;
        if (const auto answer = usable(); answer != RingAnswer::kOk) return answer;
        if (const auto answer = lay_down(body_bytes, claim_); answer != RingAnswer::kOk) return answer;
        claimed_ = true;
        body = {memory_.at(claim_.message) + ring_layout::kMessageHeaderBytes, body_bytes};
        return RingAnswer::kOk;
    }

    RingAnswer commit(uint32_t kind) noexcept {
        if (!claimed_ || kind == ring_layout::kKindPadding) return RingAnswer::kMisuse;
        if (const auto answer = usable(); answer != RingAnswer::kOk) return answer;
        claimed_ = false;
        append(claim_, kind);
        publish();
        return RingAnswer::kOk;
    }

    RingAnswer abort() noexcept {
        if (!claimed_) return RingAnswer::kMisuse;
        claimed_ = false;
        return RingAnswer::kOk;
    }

    RingAnswer write(std::span<const std::byte> body, uint32_t kind) noexcept {
        size_t written = 0;
        return write_many(1, [body](size_t) { return body; }, kind, written);
    }

    // Writes messages 0, 1, ... of `count`, `body_of(i)` each, until one does not fit; says how many did.
    // `full` means that some did not. The first message that cannot ever fit ends the call with `too_large`.
    template <class BodyOf>
    RingAnswer write_many(size_t count, BodyOf body_of, uint32_t kind, size_t& written) noexcept {
        written = 0;
        if (claimed_ || kind == ring_layout::kKindPadding) return RingAnswer::kMisuse;
        if (const auto answer = usable(); answer != RingAnswer::kOk) return answer;
        RingAnswer answer = RingAnswer::kOk;
        for (; written < count; ++written) {
            const std::span<const std::byte> body = body_of(written);
            Spot spot;
            answer = lay_down(body.size(), spot);
            if (answer != RingAnswer::kOk) break;
            probe_.copy(memory_.at(spot.message) + ring_layout::kMessageHeaderBytes, body.data(), body.size());
            probe_.at(RingStep::kBodyCopied);
            append(spot, kind);
            if (end_ - published_ >= kPublishBytes) publish();
        }
        if (end_ != published_) publish();
        return answer;
    }

    // True when the reader announced that it sleeps: the caller must now ring its doorbell. True once per
    // announcement. A writer killed between the two leaves a sleeping reader behind; whoever notices the
    // death rings all doorbells of the dead.
    //
    // The fence pairs with the one in RingReader::announce_wait. Each side stores (we a header, the reader its
    // announcement) and then loads what the other stored. Without the fences both loads may run before
    // either store is visible, each side sees nothing of the other, and the reader sleeps on a message.
    // Of two sequentially consistent fences one comes first, and what was stored before it is seen by the
    // loads behind the other: at least one side notices.
    bool take_wakeup() noexcept {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        auto waits = shared_word(memory_.header().reader_waits);
        if (waits.load(std::memory_order_relaxed) == 0) return false;
        const bool taken = waits.exchange(0, std::memory_order_relaxed) != 0;
        probe_.at(RingStep::kWakeupTaken);
        return taken;
    }

    // Nothing more follows. The caller then rings if take_wakeup() says so, as after a write.
    void close() noexcept {
        claimed_ = false;
        if (memory_.is_current()) RingMemory::close(memory_.header().writer_state);
        probe_.at(RingStep::kWriterClosed);
    }

    const RingMemory& memory() const noexcept { return memory_; }
    const Fault& fault() const noexcept { return fault_; }
    bool claimed() const noexcept { return claimed_; }
    uint64_t position() const noexcept { return published_; }

    // Bytes that the reader has not released, as far as this side knows; asks the reader's position anew.
    RingAnswer used_bytes(uint64_t& bytes) noexcept {
        if (const auto answer = usable(); answer != RingAnswer::kOk) return answer;
        if (const auto answer = look_at_consumer(); answer != RingAnswer::kOk) return answer;
        bytes = published_ - consumer_seen_;
        return RingAnswer::kOk;
    }

private:
    // Where a message goes: `padding` bytes to the end of the data area first, when it must wrap.
    struct Spot {
        uint64_t padding = 0;
        uint64_t message = 0;  // position of its header
        uint64_t bytes = 0;    // header and body
    };

    // Often enough that the reader starts early on a long run, seldom enough that the lines which both
    // sides touch stay quiet.
    static constexpr uint64_t kPublishBytes = 16 << 10;

    RingAnswer usable() noexcept {
        if (broken_) return RingAnswer::kCorrupt;
        if (!memory_.is_current()) return RingAnswer::kStale;
        if (RingMemory::is_closed(memory_.header().reader_state)) return RingAnswer::kClosed;
        return RingAnswer::kOk;
    }

    RingAnswer lay_down(size_t body_bytes, Spot& spot) noexcept {
        using namespace ring_layout;
        if (body_bytes > memory_.body_bytes_max()) return RingAnswer::kTooLarge;
        spot.bytes = kMessageHeaderBytes + body_bytes;
        const uint64_t room = aligned(spot.bytes);
        const uint64_t to_end = memory_.capacity() - memory_.place(end_);
        spot.padding = room > to_end ? to_end : 0;
        spot.message = end_ + spot.padding;
        // The last word is the zero behind the message.
        const uint64_t needed_end = spot.message + room + kWordBytes;
        if (needed_end - consumer_seen_ > memory_.capacity()) {
            if (const auto answer = look_at_consumer(); answer != RingAnswer::kOk) return answer;
            if (needed_end - consumer_seen_ > memory_.capacity()) return RingAnswer::kFull;
        }
        probe_.at(RingStep::kRoomFound);
        return RingAnswer::kOk;
    }

    // The reader's line is only fetched when our last view of it leaves too little room.
    RingAnswer look_at_consumer() noexcept {
        const uint64_t consumer = shared_word(memory_.header().consumer_position).load(std::memory_order_acquire);
        if (!ring_layout::is_aligned(consumer) || consumer < consumer_seen_ || consumer > published_) {
            return corrupt("consumer position", offsetof(RingHeader, consumer_position),
                           "unaligned, moved back, or beyond what was published");
        }
        consumer_seen_ = consumer;
        return RingAnswer::kOk;
    }

    void append(const Spot& spot, uint32_t kind) noexcept {
        using namespace ring_layout;
        if (spot.padding != 0) hold_or_store(end_, message_word(spot.padding, kKindPadding));
        hold_or_store(spot.message, message_word(spot.bytes, kind));
        end_ = spot.message + aligned(spot.bytes);
    }

    // The first header of what is published together is held back: it is the one that publishes.
    void hold_or_store(uint64_t position, uint64_t word) noexcept {
        if (position == published_) {
            held_word_ = word;
            return;
        }
        memory_.word_at(position).store(word, std::memory_order_relaxed);
        probe_.at(RingStep::kInnerHeaderStored);
    }

    void publish() noexcept {
        memory_.word_at(end_).store(0, std::memory_order_relaxed);
        probe_.at(RingStep::kNextHeaderZeroed);
        shared_word(memory_.header().producer_position).store(end_, std::memory_order_relaxed);
        probe_.at(RingStep::kProducerPositionStored);
        memory_.word_at(published_).store(held_word_, std::memory_order_release);
        probe_.at(RingStep::kMessagePublished);
        published_ = end_;
    }

    RingAnswer corrupt(const char* field, uint64_t position, const char* reason) noexcept {
        broken_ = true;
        fault_ = {field, static_cast<int64_t>(position), reason};
        return RingAnswer::kCorrupt;
    }

    RingMemory memory_;
    Fault fault_;
    uint64_t published_ = 0;      // what the reader may see ends here
    uint64_t end_ = 0;            // >= published_: what was stored ends here
    uint64_t held_word_ = 0;      // the header at published_, while end_ > published_
    uint64_t consumer_seen_ = 0;  // never ahead of the reader's real position
    Spot claim_;
    bool claimed_ = false;
    bool broken_ = false;
    [[no_unique_address]] Probe probe_;
};

}  // namespace ringlog
