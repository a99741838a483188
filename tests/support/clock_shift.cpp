// Shifts the wall clock of one process tree: preloaded before libc, it adds the seconds in a mapped file.
//
// RINGLOG_TEST_CLOCK names a file of 8 bytes, a signed number of seconds that may change at any time. The monotonic
// clock is left alone, as it is when somebody sets the time of a machine.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {

using ClockGettime = int (*)(clockid_t, struct timespec*);

std::atomic<std::int64_t>* mapped_shift() {
    static std::atomic<std::int64_t>* shift = [] {
        const char* path = std::getenv("RINGLOG_TEST_CLOCK");
        const int fd = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            return static_cast<std::atomic<std::int64_t>*>(nullptr);
        }
        void* memory = mmap(nullptr, sizeof(std::int64_t), PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        return memory == MAP_FAILED ? nullptr : static_cast<std::atomic<std::int64_t>*>(memory);
    }();
    return shift;
}

std::int64_t shift_s() {
    auto* shift = mapped_shift();
    return shift == nullptr ? 0 : shift->load(std::memory_order_relaxed);
}

int real_clock_gettime(clockid_t clock, struct timespec* now) {
    static auto next = reinterpret_cast<ClockGettime>(dlsym(RTLD_NEXT, "clock_gettime"));
    return next(clock, now);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, struct timespec* now) noexcept {
    const int done = real_clock_gettime(clock, now);
    if (done == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        now->tv_sec += shift_s();
    }
    return done;
}

int gettimeofday(struct timeval* now, void*) noexcept {
    struct timespec precise {};
    const int done = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return done;
}

time_t time(time_t* result) noexcept {
    struct timespec now {};
    clock_gettime(CLOCK_REALTIME, &now);
    if (result != nullptr) {
        *result = now.tv_sec;
    }
    return now.tv_sec;
}
}
