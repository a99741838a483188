// A writer and a reader, at full speed and at random pauses: every message arrives once, whole, in order.
//
//   ring_stream processes|threads SECONDS SEED CAPACITY
//
// The writer mixes all ways to write (one, many, claim and commit, claim and abort); the reader mixes how
// often it releases, and sleeps on the doorbell when it finds nothing. A doorbell that stays silent although a
// message lies in the ring is a lost wake-up and fails the run. Prints messages, laps and sleeps.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string_view>
#include <thread>
#include <vector>

#include "harness.hpp"
#include "pattern.hpp"

using namespace ringlog;
using namespace litmus;

namespace {

constexpr int kLostWakeupMs = 5000;

void ring_if_asleep(RingWriter<>& writer, int doorbell) {
    const uint64_t one = 1;
    if (writer.take_wakeup()) REQUIRE(::write(doorbell, &one, sizeof one) == sizeof one, "ring the doorbell");
}

void write_for(double seconds, const SharedRing& ring, const Pattern& pattern, int doorbell, uint64_t seed) {
    RingWriter<> writer;
    ring.attach(writer);
    const double end_s = now_s() + seconds;
    std::vector<std::byte> scratch[Pattern::kRun];
    uint64_t next = 0;
    for (uint64_t turn = 0; now_s() < end_s; ++turn) {
        const uint64_t random = scramble(seed * 7919 + turn);
        RingAnswer answer = RingAnswer::kOk;
        size_t written = 0;
        std::span<std::byte> body;
        switch (random % 4) {
            case 0:
                answer = writer.write(pattern.make(next, scratch[0]), pattern.kind(next));
                written = answer == RingAnswer::kOk ? 1 : 0;
                break;
            case 1:
                answer = writer.write_many(
                    pattern.left_in_run(next), [&](size_t i) { return pattern.make(next + i, scratch[i]); },
                    pattern.kind(next), written);
                break;
            case 2:
                answer = writer.claim(pattern.size(next), body);
                if (answer != RingAnswer::kOk) break;
                pattern.fill(next, body);
                REQUIRE(writer.commit(pattern.kind(next)) == RingAnswer::kOk, "commit");
                written = 1;
                break;
            default:
                answer = writer.claim(pattern.size(next), body);
                if (answer != RingAnswer::kOk) break;
                pattern.fill(next + 1, body);  // of some other message: must never be seen
                REQUIRE(writer.abort() == RingAnswer::kOk, "abort");
        }
        REQUIRE(answer == RingAnswer::kOk || answer == RingAnswer::kFull, "write: %s", writer.fault().reason);
        next += written;
        ring_if_asleep(writer, doorbell);
        if (answer == RingAnswer::kFull) std::this_thread::yield();
        // Lets the reader run dry now and then, so that it goes to sleep at every point of a write.
        if ((random >> 8) % 64 == 0) spin((random >> 16) % 4096);
    }
    writer.close();
    ring_if_asleep(writer, doorbell);
}

struct ReadCounts {
    uint64_t messages = 0;
    uint64_t laps = 0;
    uint64_t sleeps = 0;
};

ReadCounts read_to_end(const SharedRing& ring, const Pattern& pattern, int doorbell, uint64_t seed) {
    RingReader<> reader;
    ring.attach(reader);
    ReadCounts counts;
    RingMessage message;
    for (;;) {
        const RingAnswer answer = reader.next(message);
        if (answer == RingAnswer::kOk) {
            REQUIRE(pattern.matches(counts.messages, message.kind, message.body), "message %llu is not what was sent",
                    static_cast<unsigned long long>(counts.messages));
            ++counts.messages;
            // Rarely enough that the ring gets full, often enough that it also runs empty.
            if (scramble(seed * 104729 + counts.messages) % 7 == 0) {
                REQUIRE(reader.release(message.end_position) == RingAnswer::kOk, "release");
            }
            continue;
        }
        REQUIRE(reader.release(reader.cursor()) == RingAnswer::kOk, "release");
        if (answer == RingAnswer::kClosed) break;
        REQUIRE(answer == RingAnswer::kEmpty, "next: %s", reader.fault().reason);
        if (!reader.announce_wait()) continue;
        ++counts.sleeps;
        pollfd poller{doorbell, POLLIN, 0};
        REQUIRE(::poll(&poller, 1, kLostWakeupMs) == 1, "a lost wake-up after message %llu",
                static_cast<unsigned long long>(counts.messages));
        reader.withdraw_wait();
        uint64_t rings = 0;
        REQUIRE(::read(doorbell, &rings, sizeof rings) == sizeof rings, "clear the doorbell");
    }
    counts.laps = reader.released() / reader.memory().capacity();
    return counts;
}

}  // namespace

int main(int count, char** arguments) {
    REQUIRE(count == 5, "usage: ring_stream processes|threads SECONDS SEED CAPACITY");
    const bool processes = std::string_view(arguments[1]) == "processes";
    const double seconds = std::atof(arguments[2]);
    const uint64_t seed = std::strtoull(arguments[3], nullptr, 10);
    const uint64_t capacity = std::strtoull(arguments[4], nullptr, 10);

    const SharedRing ring(capacity, 1);
    const Pattern pattern(seed, ring_layout::body_bytes_max(capacity));
    const int doorbell = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    REQUIRE(doorbell >= 0, "eventfd");

    ReadCounts counts;
    if (processes) {
        const pid_t child = ::fork();
        REQUIRE(child >= 0, "fork");
        if (child == 0) {
            write_for(seconds, ring, pattern, doorbell, seed);
            std::_Exit(0);
        }
        counts = read_to_end(ring, pattern, doorbell, seed);
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child && status == 0, "the writer failed");
    } else {
        std::thread writer([&] { write_for(seconds, ring, pattern, doorbell, seed); });
        counts = read_to_end(ring, pattern, doorbell, seed);
        writer.join();
    }
    REQUIRE(counts.messages > 0, "nothing was sent");
    std::printf("messages=%llu laps=%llu sleeps=%llu\n", static_cast<unsigned long long>(counts.messages),
                static_cast<unsigned long long>(counts.laps), static_cast<unsigned long long>(counts.sleeps));
}
