// Kills one side of a ring with SIGKILL at every single step of its work, then looks at what is left.
//
//   ring_kill writer|reader STARTS SEED
//
// For each of STARTS places of the ring's positions (so that the end of the data area falls on another step)
// and for each step n = 1, 2, ... until the work completes untouched: a child does the work and dies at
// step n. Then
//   - what can be read is whole messages, in order, none missing that the dead writer had finished, none
//     twice beyond the released position of a dead reader;
//   - a peer that lived on never finds the ring corrupt;
//   - a new generation carries messages within a second of the kill.
// Prints kills, the most steps of one piece of work, and the slowest resumption.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "harness.hpp"
#include "pattern.hpp"

using namespace ringlog;
using namespace litmus;

namespace {

constexpr uint64_t kCapacity = 4096;
constexpr uint64_t kMessagesBefore = 3;  // published and unread when the work starts
constexpr double kResumeSMax = 1.0;

struct KillProbe {
    uint64_t* steps_left;  // shared by copies of a handle; 0: never kill

    void at(RingStep) noexcept {
        if (*steps_left != 0 && --*steps_left == 0) {
            ::raise(SIGKILL);
        }
    }
    void copy(std::byte* to, const std::byte* from, size_t bytes) noexcept {
        for (size_t done = 0; done < bytes; done += 8) {
            std::memcpy(to + done, from + done, std::min<size_t>(8, bytes - done));
            at(RingStep::kBodyWordCopied);
        }
    }
};

uint64_t steps_left = 0;

// What the child got done: counts of messages since the ring was made, and of released bytes.
struct Progress {
    uint64_t finished = 0;  // messages whose write returned, or whose release returned
    uint64_t begun = 0;     // messages whose write, or whose release, had begun
    uint64_t finished_position = 0;
    uint64_t begun_position = 0;
};

// Small ones for steps that lie close together, and some that force the ring to wrap.
class WorkPattern : public Pattern {
public:
    explicit WorkPattern(uint64_t seed) : Pattern(seed, ring_layout::body_bytes_max(kCapacity)), seed_(seed) {}
    size_t size(uint64_t i) const {
        static constexpr size_t kSizes[] = {0, 1, 8, 13, 64, 200, 400};
        return kSizes[scramble(seed_ * 31 + i) % 7];
    }
    std::vector<std::byte> body(uint64_t i) const {
        std::vector<std::byte> bytes(size(i));
        fill(i, bytes);
        return bytes;
    }
    bool matches(uint64_t i, const RingMessage& message) const {
        const std::vector<std::byte> expected = body(i);
        return message.kind == kind(i) && std::ranges::equal(message.body, expected);
    }

private:
    uint64_t seed_;
};

// Every way to write. Messages from `first` on; as many as the reader's absence leaves room for.
void do_writes(RingWriter<KillProbe>& writer, const WorkPattern& pattern, uint64_t first, Progress* progress) {
    uint64_t next = first;
    const auto will_write = [&](uint64_t messages) { progress->begun = next + messages; };
    const auto have_written = [&](uint64_t messages) { progress->finished = next += messages; };

    for (int i = 0; i < 3; ++i) {
        will_write(1);
        REQUIRE(writer.write(pattern.body(next), pattern.kind(next)) == RingAnswer::kOk, "write");
        have_written(1);
    }
    std::span<std::byte> claimed;
    REQUIRE(writer.claim(pattern.size(next) + 40, claimed) == RingAnswer::kOk, "claim to abort");
    std::ranges::fill(claimed, std::byte{0xee});
    REQUIRE(writer.abort() == RingAnswer::kOk, "abort");

    will_write(1);
    REQUIRE(writer.claim(pattern.size(next), claimed) == RingAnswer::kOk, "claim");
    pattern.fill(next, claimed);
    REQUIRE(writer.commit(pattern.kind(next)) == RingAnswer::kOk, "commit");
    have_written(1);

    const uint64_t many = pattern.left_in_run(next);
    std::vector<std::vector<std::byte>> bodies;
    for (uint64_t i = 0; i < many; ++i) bodies.push_back(pattern.body(next + i));
    will_write(many);
    size_t written = 0;
    const RingAnswer answer = writer.write_many(
        many, [&](size_t i) { return std::span<const std::byte>(bodies[i]); }, pattern.kind(next), written);
    REQUIRE(answer == RingAnswer::kOk || answer == RingAnswer::kFull, "write many");
    have_written(written);

    writer.take_wakeup();
    writer.close();
}

void do_reads(RingReader<KillProbe>& reader, const WorkPattern& pattern, uint64_t first, Progress* progress) {
    uint64_t next = first;
    RingMessage message;
    const auto release_all = [&] {
        progress->begun = next;
        progress->begun_position = reader.cursor();
        REQUIRE(reader.release(reader.cursor()) == RingAnswer::kOk, "release");
        progress->finished = next;
        progress->finished_position = reader.cursor();
    };
    while (reader.next(message) == RingAnswer::kOk) {
        REQUIRE(pattern.matches(next, message), "message %llu", static_cast<unsigned long long>(next));
        ++next;
        if (next % 2 == 0) release_all();
    }
    release_all();
    REQUIRE(reader.announce_wait(), "nothing is left to read");
    reader.withdraw_wait();
    reader.close();
}

// A copy of the memory in which the reader's side is free again: what a fresh reader would see.
std::vector<uint64_t> copy_for_autopsy(const SharedRing& ring) {
    std::vector<uint64_t> copy(ring.memory().size() / 8);
    std::memcpy(copy.data(), ring.memory().data(), ring.memory().size());
    reinterpret_cast<RingHeader*>(copy.data())->reader_state = 0;
    return copy;
}

uint64_t read_whole(RingReader<>& reader, const WorkPattern& pattern, uint64_t first) {
    RingMessage message;
    uint64_t next = first;
    RingAnswer answer = RingAnswer::kOk;
    while ((answer = reader.next(message)) == RingAnswer::kOk) {
        REQUIRE(pattern.matches(next, message), "message %llu is not whole", static_cast<unsigned long long>(next));
        ++next;
    }
    REQUIRE(answer == RingAnswer::kEmpty || answer == RingAnswer::kClosed, "%s: %s", reader.fault().field,
            reader.fault().reason);
    return next;
}

// The owner's part after a death: retire, make a new generation, and messages flow again.
void resume(const SharedRing& dead, const WorkPattern& pattern) {
    RingMemory owner;
    Fault fault;
    REQUIRE(owner.open(dead.memory(), dead.generation(), fault) == RingAnswer::kOk, "%s", fault.reason);
    owner.retire();
    RingReader<> late;
    REQUIRE(late.attach(dead.memory(), dead.generation()) == RingAnswer::kStale, "a retired ring takes no handle");

    const SharedRing born(kCapacity, dead.generation() + 1);
    const pid_t child = ::fork();
    REQUIRE(child >= 0, "fork");
    if (child == 0) {
        RingWriter<> writer;
        born.attach(writer);
        REQUIRE(writer.write(pattern.body(0), pattern.kind(0)) == RingAnswer::kOk, "write");
        std::_Exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child && status == 0, "the new writer failed");
    RingReader<> reader;
    born.attach(reader);
    REQUIRE(read_whole(reader, pattern, 0) == 1, "the new generation carries a message");
}

// Brings both positions to `start_messages` messages and leaves kMessagesBefore unread.
template <class Writer, class Reader>
void warm_up(Writer& writer, Reader& reader, const WorkPattern& pattern, uint64_t start_messages) {
    RingMessage message;
    for (uint64_t i = 0; i < start_messages + kMessagesBefore; ++i) {
        REQUIRE(writer.write(pattern.body(i), pattern.kind(i)) == RingAnswer::kOk, "warm up");
        if (i < start_messages) {
            REQUIRE(reader.next(message) == RingAnswer::kOk, "warm up");
            REQUIRE(reader.release(message.end_position) == RingAnswer::kOk, "warm up");
        }
    }
}

// One kill. False when the work completed before step n came.
bool kill_at_step(bool kill_writer, uint64_t n, uint64_t start_messages, const WorkPattern& pattern,
                  double& resume_s) {
    const SharedRing ring(kCapacity, 1);
    const SharedCounters<Progress> progress;
    RingWriter<KillProbe> writer(KillProbe{&steps_left});
    RingReader<KillProbe> reader(KillProbe{&steps_left});
    ring.attach(writer);
    ring.attach(reader);
    warm_up(writer, reader, pattern, start_messages);
    const uint64_t unread = start_messages;
    const uint64_t sent = start_messages + kMessagesBefore;
    progress->begun = progress->finished = kill_writer ? sent : unread;
    progress->begun_position = progress->finished_position = reader.released();

    const pid_t child = ::fork();
    REQUIRE(child >= 0, "fork");
    if (child == 0) {
        steps_left = n;
        if (kill_writer) {
            do_writes(writer, pattern, sent, progress.operator->());
        } else {
            do_reads(reader, pattern, unread, progress.operator->());
        }
        std::_Exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child, "waitpid");
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    REQUIRE(killed || status == 0, "the child failed by itself at step %llu", static_cast<unsigned long long>(n));
    const double killed_at_s = now_s();

    std::vector<uint64_t> autopsy = copy_for_autopsy(ring);
    RingReader<> fresh;
    REQUIRE(fresh.attach(std::as_writable_bytes(std::span(autopsy)), 1) == RingAnswer::kOk, "%s", fresh.fault().reason);
    if (kill_writer) {
        const uint64_t end = read_whole(fresh, pattern, unread);
        REQUIRE(end >= progress->finished && end <= progress->begun, "step %llu: read %llu of %llu..%llu",
                static_cast<unsigned long long>(n), static_cast<unsigned long long>(end),
                static_cast<unsigned long long>(progress->finished), static_cast<unsigned long long>(progress->begun));
        // The reader that was attached all along sees the same.
        RingMessage message;
        uint64_t seen = unread;
        while (reader.next(message) == RingAnswer::kOk) REQUIRE(pattern.matches(seen++, message), "the living reader");
        REQUIRE(seen == end, "the living reader and a fresh one agree");
        REQUIRE(reader.release(reader.cursor()) == RingAnswer::kOk, "release");
    } else {
        // Killed between the store and the return of a release: either position is right.
        const bool begun_counts = fresh.released() == progress->begun_position;
        REQUIRE(begun_counts || fresh.released() == progress->finished_position, "a position that was released");
        const uint64_t first = begun_counts ? progress->begun : progress->finished;
        REQUIRE(read_whole(fresh, pattern, first) == sent, "nothing unreleased is lost");
        // The writer that lives on finds it full in the end, or closed, never corrupt.
        RingAnswer answer = RingAnswer::kOk;
        while (answer == RingAnswer::kOk) answer = writer.write(pattern.body(0), pattern.kind(0));
        REQUIRE(answer == RingAnswer::kFull || answer == RingAnswer::kClosed, "%s", writer.fault().reason);
    }
    resume(ring, pattern);
    resume_s = std::max(resume_s, now_s() - killed_at_s);
    return killed;
}

}  // namespace

int main(int count, char** arguments) {
    REQUIRE(count == 4, "usage: ring_kill writer|reader STARTS SEED");
    const bool kill_writer = std::string_view(arguments[1]) == "writer";
    const uint64_t starts = std::strtoull(arguments[2], nullptr, 10);
    const uint64_t seed = std::strtoull(arguments[3], nullptr, 10);

    uint64_t kills = 0;
    uint64_t steps_most = 0;
    double resume_s = 0;
    for (uint64_t start = 0; start < starts; ++start) {
        const WorkPattern pattern(seed + start);
        uint64_t n = 1;
        while (kill_at_step(kill_writer, n, 1 + 7 * start, pattern, resume_s)) ++n;
        kills += n - 1;
        steps_most = std::max(steps_most, n - 1);
    }
    REQUIRE(kills > 0, "no step was reached");
    REQUIRE(resume_s < kResumeSMax, "resumed only after %.3f s", resume_s);
    std::printf("kills=%llu steps=%llu resume_ms=%.1f\n", static_cast<unsigned long long>(kills),
                static_cast<unsigned long long>(steps_most), resume_s * 1000);
}
