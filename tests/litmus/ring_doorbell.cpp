// Hunts for lost wake-ups: one message at a time, written just when the reader is about to fall asleep.
//
//   ring_doorbell SECONDS SEED
//
// The writer sends the next message as soon as the last one was released, after a few random cycles; the reader
// announces its sleep right after the release, after a few of its own. So the two halves of the handshake
// meet at every offset. A message that nobody wakes up for is seen by the writer as one never released.
// Prints rounds and sleeps.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.hpp"
#include "pattern.hpp"

using namespace ringlog;
using namespace litmus;

namespace {

constexpr double kLostS = 2.0;

void ring_if_asleep(RingWriter<>& writer, int doorbell) {
    const uint64_t one = 1;
    if (writer.take_wakeup()) REQUIRE(::write(doorbell, &one, sizeof one) == sizeof one, "ring the doorbell");
}

void write_one_by_one(double seconds, const SharedRing& ring, int doorbell, uint64_t seed) {
    RingWriter<> writer;
    ring.attach(writer);
    const double end_s = now_s() + seconds;
    for (uint64_t round = 0; round % 64 != 0 || now_s() < end_s; ++round) {
        spin(scramble(seed + round) % 256);
        REQUIRE(writer.write({}, 0) == RingAnswer::kOk, "write");
        ring_if_asleep(writer, doorbell);
        uint64_t unread = 1;
        double lost_at_s = 0;
        for (uint64_t looks = 1; unread != 0; ++looks) {
            REQUIRE(writer.used_bytes(unread) == RingAnswer::kOk, "%s", writer.fault().reason);
            if (looks % 4096 != 0) continue;
            if (lost_at_s == 0) lost_at_s = now_s() + kLostS;
            REQUIRE(now_s() < lost_at_s, "a lost wake-up in round %llu", static_cast<unsigned long long>(round));
        }
    }
    writer.close();
    ring_if_asleep(writer, doorbell);
}

}  // namespace

int main(int count, char** arguments) {
    REQUIRE(count == 3, "usage: ring_doorbell SECONDS SEED");
    const double seconds = std::atof(arguments[1]);
    const uint64_t seed = std::strtoull(arguments[2], nullptr, 10);
    const SharedRing ring(ring_layout::kCapacityMin, 1);
    const int doorbell = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    REQUIRE(doorbell >= 0, "eventfd");
    const pid_t child = ::fork();
    REQUIRE(child >= 0, "fork");
    if (child == 0) {
        write_one_by_one(seconds, ring, doorbell, seed);
        std::_Exit(0);
    }

    RingReader<> reader;
    ring.attach(reader);
    RingMessage message;
    uint64_t rounds = 0;
    uint64_t sleeps = 0;
    RingAnswer answer = RingAnswer::kOk;
    while ((answer = reader.next(message)) != RingAnswer::kClosed) {
        if (answer == RingAnswer::kOk) {
            ++rounds;
            REQUIRE(reader.release(message.end_position) == RingAnswer::kOk, "release");
            spin(scramble(seed * 3 + rounds) % 256);
            continue;
        }
        REQUIRE(answer == RingAnswer::kEmpty, "next: %s", reader.fault().reason);
        if (!reader.announce_wait()) continue;
        ++sleeps;
        pollfd poller{doorbell, POLLIN, 0};
        // Longer than the writer's patience: it is the writer who reports a lost wake-up.
        if (::poll(&poller, 1, static_cast<int>(2000 * kLostS)) != 1) break;
        reader.withdraw_wait();
        uint64_t rings = 0;
        REQUIRE(::read(doorbell, &rings, sizeof rings) == sizeof rings, "clear the doorbell");
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child && status == 0, "the writer failed");
    std::printf("rounds=%llu sleeps=%llu\n", static_cast<unsigned long long>(rounds),
                static_cast<unsigned long long>(sleeps));
}
