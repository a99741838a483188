// The ring for Python: handles that own a buffer, and answers that become typed errors.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "bindings.hpp"
#include "drain.hpp"
#include "py_buffer.hpp"
#include "ring.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace ringlog {
namespace {

// Copies at least this large let other Python threads run meanwhile.
constexpr size_t kGilReleaseBytes = 64 << 10;

[[noreturn]] void raise(const char* type, nb::tuple arguments) {
    const nb::object error_type = nb::module_::import_("ringlog.errors").attr(type);
    const nb::object error = error_type(*arguments);
    PyErr_SetObject(error_type.ptr(), error.ptr());
    throw nb::python_error();
}

[[noreturn]] void raise(const char* type, const char* message) { raise(type, nb::make_tuple(message)); }

// Any answer but ok, full and empty.
[[noreturn]] void raise_answer(RingAnswer answer, const Fault& fault) {
    switch (answer) {
        case RingAnswer::kCorrupt:
            raise("RingCorrupt", nb::make_tuple(fault.field, fault.position, fault.reason));
        case RingAnswer::kStale:
            raise("RingStale", "the ring was retired or is of another generation: open the current one");
        case RingAnswer::kTaken:
            raise("RingTaken", "this generation already has, or had, such a side: make a new one");
        case RingAnswer::kClosed:
            raise("RingClosed", "the reader closed this ring: wait for the next generation");
        case RingAnswer::kTooLarge:
            raise("InvalidRequest", "the message is larger than body_bytes_max of this ring");
        default:
            raise("InvalidRequest", "not now: one claim at a time, no call on a closed handle, kind below 2**32 - 1");
    }
}

std::span<std::byte> writable(const PyBuffer& buffer) noexcept {
    return std::as_writable_bytes(std::span(buffer.writable(), buffer.size()));
}

std::span<const std::byte> readable(const PyBuffer& buffer) noexcept {
    return std::as_bytes(std::span(buffer.data(), buffer.size()));
}

// The bytes of a table, for NumPy to look at.
nb::object uninitialised_bytes(size_t size) {
    nb::object bytes = nb::steal(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
    if (!bytes.is_valid()) throw nb::python_error();
    return bytes;
}

[[noreturn]] void raise_errno() {
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
}

// Our own duplicate of a descriptor: its number cannot come to mean another file while we use it.
class FileDescriptor {
public:
    // -1: none.
    explicit FileDescriptor(int other) : number_(other < 0 ? -1 : ::fcntl(other, F_DUPFD_CLOEXEC, 0)) {
        if (other >= 0 && number_ < 0) raise_errno();
    }
    ~FileDescriptor() {
        if (number_ >= 0) ::close(number_);
    }
    FileDescriptor(const FileDescriptor&) = delete;
    FileDescriptor& operator=(const FileDescriptor&) = delete;
    int number() const noexcept { return number_; }

private:
    int number_;
};

// What both kinds of handle share. A handle that is dropped without close() leaves the ring's state alone:
// a forked child drops copies of handles that its parent still uses.
template <class Side>
class Handle {
public:
    Handle(nb::handle memory, uint64_t generation) : buffer_(std::in_place, memory, PyBuffer::Access::kWrite) {
        if (const auto answer = side_.attach(writable(*buffer_), generation); answer != RingAnswer::kOk) {
            raise_answer(answer, side_.fault());
        }
    }

    // The side, for one call. Refuses when closed, or when another thread is inside a call that runs
    // without the GIL.
    Side& side() {
        if (!buffer_.has_value() || inside_) raise_answer(RingAnswer::kMisuse, {});
        return side_;
    }
    bool closed() const noexcept { return !buffer_.has_value(); }

    template <class Work>
    auto without_gil(Work work) {
        Side& used = side();
        inside_ = true;
        struct Leave {
            bool& inside;
            ~Leave() { inside = false; }
        } leave{inside_};
        const nb::gil_scoped_release released;
        return work(used);
    }

    // The buffer goes back to its owner: an mmap can be closed only then.
    void give_back() { buffer_.reset(); }

    [[noreturn]] void raise_fault(RingAnswer answer) const { raise_answer(answer, side_.fault()); }

private:
    std::optional<PyBuffer> buffer_;
    Side side_;
    bool inside_ = false;
};

class WriterHandle : public Handle<RingWriter<>> {
public:
    WriterHandle(nb::handle memory, uint64_t generation, int doorbell_fd)
        : Handle(memory, generation), doorbell_(doorbell_fd) {}

    bool write(nb::handle data, uint32_t kind, bool wakes) {
        const PyBuffer body(data);
        const RingAnswer answer =
            body.size() < kGilReleaseBytes
                ? side().write(readable(body), kind)
                : without_gil([&](RingWriter<>& writer) { return writer.write(readable(body), kind); });
        if (answer == RingAnswer::kFull) return false;
        if (answer != RingAnswer::kOk) raise_fault(answer);
        if (wakes) wake_reader();
        return true;
    }

    using Offsets = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

    size_t write_many(const Offsets& offsets, nb::handle data, uint32_t kind) {
        const PyBuffer bodies(data);
        const std::span<const std::byte> bytes = readable(bodies);
        const std::span<const int64_t> bounds{offsets.data(), offsets.size()};
        if (bounds.empty()) raise("InvalidRequest", "offsets hold one entry more than there are messages");
        size_t written = 0;
        bool sound = true;
        const RingAnswer answer = without_gil([&](RingWriter<>& writer) {
            sound = are_sound(bounds, bytes.size(), writer.memory().body_bytes_max());
            if (!sound) return RingAnswer::kMisuse;
            return writer.write_many(
                bounds.size() - 1,
                [&](size_t i) {
                    const auto first = static_cast<size_t>(bounds[i]);
                    return bytes.subspan(first, static_cast<size_t>(bounds[i + 1]) - first);
                },
                kind, written);
        });
        if (written != 0) wake_reader();
        if (!sound) raise("InvalidRequest", "offsets must ascend within the data, by body_bytes_max at most");
        if (answer != RingAnswer::kOk && answer != RingAnswer::kFull) raise_fault(answer);
        return written;
    }

    // Offset of the claimed body in the memory; nothing when the ring is full.
    std::optional<uint64_t> claim(size_t body_bytes) {
        std::span<std::byte> body;
        const RingAnswer answer = side().claim(body_bytes, body);
        if (answer == RingAnswer::kFull) return std::nullopt;
        if (answer != RingAnswer::kOk) raise_fault(answer);
        return static_cast<uint64_t>(body.data() - reinterpret_cast<std::byte*>(&side().memory().header()));
    }

    void commit(uint32_t kind) {
        if (const auto answer = side().commit(kind); answer != RingAnswer::kOk) raise_fault(answer);
        wake_reader();
    }

    void abort() {
        if (const auto answer = side().abort(); answer != RingAnswer::kOk) raise_fault(answer);
    }

    uint64_t used_bytes() {
        uint64_t bytes = 0;
        if (const auto answer = side().used_bytes(bytes); answer != RingAnswer::kOk) raise_fault(answer);
        return bytes;
    }

    void close() {
        if (closed()) return;
        side().close();
        wake_reader();
        give_back();
    }

private:
    // Looked at before the first message is written, so that a bad request changes nothing.
    static bool are_sound(std::span<const int64_t> bounds, uint64_t bytes, uint64_t body_bytes_max) noexcept {
        if (bounds.front() < 0 || static_cast<uint64_t>(bounds.back()) > bytes) return false;
        bool sound = true;
        for (size_t i = 1; i < bounds.size(); ++i) {
            // Descending bounds differ by a huge unsigned number, which no ring takes.
            sound &= static_cast<uint64_t>(bounds[i]) - static_cast<uint64_t>(bounds[i - 1]) <= body_bytes_max;
        }
        return sound;
    }

    void wake_reader() {
        if (doorbell_.number() < 0 || !side().take_wakeup()) return;
        const uint64_t one = 1;
        // EAGAIN: the count is at its maximum, so the doorbell is readable anyway.
        if (::write(doorbell_.number(), &one, sizeof one) < 0 && errno != EAGAIN) raise_errno();
    }

    FileDescriptor doorbell_;
};

class ReaderHandle : public Handle<RingReader<>> {
public:
    using Handle::Handle;

    // Kind, offset in the memory and bytes of each message behind the cursor.
    std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> walk(size_t messages_max) {
        std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> found;
        RingMessage message;
        while (found.size() < messages_max) {
            const RingAnswer answer = side().next(message);
            if (answer == RingAnswer::kOk) {
                found.emplace_back(message.kind, message.offset, message.body.size());
                continue;
            }
            ended_ = answer == RingAnswer::kClosed;
            // What lies before a fault is whole: it is handed out first, the fault comes at the next call.
            if (found.empty() && is_fault(answer)) raise_fault(answer);
            break;
        }
        return found;
    }

    // The rows and groups of a drain, as bytes. Rows that precede a fault of the ring are handed out first.
    nb::tuple drain(size_t messages_max, uint64_t bytes_max) {
        const RingAnswer answer =
            without_gil([&](RingReader<>& reader) { return drain_.run(reader, messages_max, bytes_max); });
        ended_ = answer == RingAnswer::kClosed;
        if (drain_.rows() == 0 && is_fault(answer)) raise_fault(answer);

        const nb::object rows = uninitialised_bytes(drain_.rows() * sizeof(DrainRow));
        char* row = PyByteArray_AS_STRING(rows.ptr());
        for (size_t i = 0; i < drain_.rows(); ++i, row += sizeof(DrainRow)) {
            std::memcpy(row, &drain_.row(i), sizeof(DrainRow));
        }
        const size_t groups_bytes = drain_.groups().size() * sizeof(DrainGroup);
        const nb::object groups = uninitialised_bytes(groups_bytes);
        if (groups_bytes != 0) std::memcpy(PyByteArray_AS_STRING(groups.ptr()), drain_.groups().data(), groups_bytes);
        return nb::make_tuple(rows, groups);
    }

    void release() {
        if (const auto answer = side().release(side().cursor()); answer != RingAnswer::kOk) raise_fault(answer);
    }

    bool ended() const noexcept { return ended_; }

    void close() {
        if (closed()) return;
        side().close();
        give_back();
    }

private:
    static bool is_fault(RingAnswer answer) noexcept {
        return answer == RingAnswer::kCorrupt || answer == RingAnswer::kStale;
    }

    Drain drain_;  // kept for its memory
    bool ended_ = false;
};

void format_ring(nb::handle memory, uint64_t capacity, uint64_t generation) {
    const PyBuffer buffer(memory, PyBuffer::Access::kWrite);
    if (RingMemory::format(writable(buffer), capacity, generation) != RingAnswer::kOk) {
        raise("InvalidRequest",
              "a ring needs a capacity that is a power of two within its bounds, memory aligned to 8 bytes for "
              "header and capacity, and a generation above 0");
    }
}

RingMemory opened(const PyBuffer& buffer, uint64_t generation) {
    RingMemory ring;
    Fault fault;
    if (const auto answer = ring.open(writable(buffer), generation, fault); answer != RingAnswer::kOk) {
        raise_answer(answer, fault);
    }
    return ring;
}

// A row of a drain that describes the copy, as bytes.
nb::object copy_batches(nb::handle into, nb::handle from) {
    const PyBuffer to(into, PyBuffer::Access::kWrite);
    const PyBuffer source(from);
    if (to.size() != source.size()) raise("InvalidRequest", "the copy is as large as what is copied");
    const nb::object bytes = uninitialised_bytes(sizeof(DrainRow));
    DrainRow row;
    {
        const nb::gil_scoped_release release;
        row = take_batches(to.writable(), source.bytes());
    }
    std::memcpy(PyByteArray_AS_STRING(bytes.ptr()), &row, sizeof row);
    return bytes;
}

uint64_t ring_capacity(nb::handle memory, uint64_t generation) {
    const PyBuffer buffer(memory, PyBuffer::Access::kWrite);
    return opened(buffer, generation).capacity();
}

void retire_ring(nb::handle memory, uint64_t generation) {
    const PyBuffer buffer(memory, PyBuffer::Access::kWrite);
    opened(buffer, generation).retire();
}

}  // namespace

void bind_ring(nb::module_& m) {
    m.attr("RING_HEADER_BYTES") = ring_layout::kRingHeaderBytes;
    m.attr("RING_CAPACITY_MAX") = ring_layout::kCapacityMax;
    m.attr("RING_KIND_PADDING") = ring_layout::kKindPadding;
    m.def("ring_body_bytes_max", &ring_layout::body_bytes_max, "capacity"_a);
    m.def("ring_format", &format_ring, "memory"_a, "capacity"_a, "generation"_a);
    m.def("ring_capacity", &ring_capacity, "memory"_a, "generation"_a);
    m.def("ring_retire", &retire_ring, "memory"_a, "generation"_a);

    m.def("copy_batches", &copy_batches, "into"_a, "source"_a);

    nb::class_<WriterHandle>(m, "RingWriter")
        .def(nb::init<nb::handle, uint64_t, int>(), "memory"_a, "generation"_a, "doorbell_fd"_a = -1)
        .def("write", &WriterHandle::write, "data"_a, "kind"_a = 0, "wakes"_a = true)
        .def("write_many", &WriterHandle::write_many, "offsets"_a, "data"_a, "kind"_a = 0)
        .def("claim", &WriterHandle::claim, "body_bytes"_a)
        .def("commit", &WriterHandle::commit, "kind"_a = 0)
        .def("abort", &WriterHandle::abort)
        .def("used_bytes", &WriterHandle::used_bytes)
        .def("close", &WriterHandle::close)
        .def_prop_ro("closed", &WriterHandle::closed)
        .def_prop_ro("capacity", [](WriterHandle& self) { return self.side().memory().capacity(); })
        .def_prop_ro("generation", [](WriterHandle& self) { return self.side().memory().generation(); });

    nb::class_<ReaderHandle>(m, "RingReader")
        .def(nb::init<nb::handle, uint64_t>(), "memory"_a, "generation"_a)
        .def("walk", &ReaderHandle::walk, "messages_max"_a)
        .def("drain", &ReaderHandle::drain, "messages_max"_a, "bytes_max"_a)
        .def("release", &ReaderHandle::release)
        .def("announce_wait", [](ReaderHandle& self) { return self.side().announce_wait(); })
        .def("withdraw_wait", [](ReaderHandle& self) { self.side().withdraw_wait(); })
        .def("close", &ReaderHandle::close)
        .def_prop_ro("ended", &ReaderHandle::ended)
        .def_prop_ro("closed", &ReaderHandle::closed)
        .def_prop_ro("capacity", [](ReaderHandle& self) { return self.side().memory().capacity(); })
        .def_prop_ro("generation", [](ReaderHandle& self) { return self.side().memory().generation(); });
}

}  // namespace ringlog
