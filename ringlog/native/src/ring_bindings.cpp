// The ring for Python: handles that own a buffer, and answers that become typed errors.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "bindings.hpp"
#include "ring.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace ringlog {
namespace {

// Copies at least this large let other Python threads run meanwhile.
constexpr std::size_t GIL_RELEASE_BYTES = 64 << 10;

[[noreturn]] void raise(const char* type, nb::tuple arguments) {
    const nb::object error_type = nb::module_::import_("ringlog.errors").attr(type);
    const nb::object error = error_type(*arguments);
    PyErr_SetObject(error_type.ptr(), error.ptr());
    throw nb::python_error();
}

[[noreturn]] void raise(const char* type, const char* message) { raise(type, nb::make_tuple(message)); }

// Any answer but ok, full and empty.
[[noreturn]] void raise_answer(RingAnswer answer, const RingFault& fault) {
    switch (answer) {
        case RingAnswer::corrupt:
            raise("RingCorrupt", nb::make_tuple(fault.field, fault.position, fault.reason));
        case RingAnswer::stale:
            raise("RingStale", "the ring was retired or is of another generation: open the current one");
        case RingAnswer::taken:
            raise("RingTaken", "this generation already has, or had, such a side: make a new one");
        case RingAnswer::closed:
            raise("RingClosed", "the reader closed this ring: wait for the next generation");
        case RingAnswer::too_large:
            raise("InvalidRequest", "the message is larger than body_bytes_max of this ring");
        default:
            raise("InvalidRequest", "not now: one claim at a time, no call on a closed handle, kind below 2**32 - 1");
    }
}

// Someone else's memory, held for as long as this lives.
class Buffer {
  public:
    Buffer(nb::handle object, int flags) {
        if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
    }
    ~Buffer() { PyBuffer_Release(&view_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    std::span<std::byte> bytes() const noexcept {
        return {static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
    }

  private:
    Py_buffer view_{};
};

// What both kinds of handle share. A handle that is dropped without close() leaves the ring's state alone:
// a forked child drops copies of handles that its parent still uses.
template <class Side>
class Handle {
  public:
    Handle(nb::handle memory, std::uint64_t generation) : buffer_(std::in_place, memory, PyBUF_WRITABLE) {
        if (const auto answer = side_.attach(buffer_->bytes(), generation); answer != RingAnswer::ok) {
            raise_answer(answer, side_.fault());
        }
    }

    // The side, for one call. Refuses when closed, or when another thread is inside a call that runs
    // without the GIL.
    Side& side() {
        if (!buffer_.has_value() || inside_) raise_answer(RingAnswer::misuse, {});
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
    std::optional<Buffer> buffer_;
    Side side_;
    bool inside_ = false;
};

class WriterHandle : public Handle<RingWriter<>> {
  public:
    WriterHandle(nb::handle memory, std::uint64_t generation, int doorbell_fd)
        : Handle(memory, generation), doorbell_fd_(doorbell_fd) {}

    bool write(nb::handle data, std::uint32_t kind) {
        const Buffer body(data, PyBUF_SIMPLE);
        const RingAnswer answer =
            body.bytes().size() < GIL_RELEASE_BYTES
                ? side().write(body.bytes(), kind)
                : without_gil([&](RingWriter<>& writer) { return writer.write(body.bytes(), kind); });
        if (answer == RingAnswer::full) return false;
        if (answer != RingAnswer::ok) raise_fault(answer);
        wake_reader();
        return true;
    }

    using Offsets = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

    std::size_t write_many(const Offsets& offsets, nb::handle data, std::uint32_t kind) {
        const Buffer bodies(data, PyBUF_SIMPLE);
        const std::span<const std::byte> bytes = bodies.bytes();
        const std::span<const std::int64_t> bounds{offsets.data(), offsets.size()};
        if (bounds.empty()) raise("InvalidRequest", "offsets hold one entry more than there are messages");
        std::size_t written = 0;
        bool ascending = true;
        const RingAnswer answer = without_gil([&](RingWriter<>& writer) {
            std::int64_t before = 0;
            for (const std::int64_t bound : bounds) {
                ascending = ascending && bound >= before && static_cast<std::uint64_t>(bound) <= bytes.size();
                before = bound;
            }
            if (!ascending) return RingAnswer::misuse;
            return writer.write_many(
                bounds.size() - 1,
                [&](std::size_t i) {
                    const auto first = static_cast<std::size_t>(bounds[i]);
                    return bytes.subspan(first, static_cast<std::size_t>(bounds[i + 1]) - first);
                },
                kind, written);
        });
        if (written != 0) wake_reader();
        if (!ascending) raise("InvalidRequest", "offsets must ascend and end within the data");
        if (answer != RingAnswer::ok && answer != RingAnswer::full) raise_fault(answer);
        return written;
    }

    // Offset of the claimed body in the memory; nothing when the ring is full.
    std::optional<std::uint64_t> claim(std::size_t body_bytes) {
        std::span<std::byte> body;
        const RingAnswer answer = side().claim(body_bytes, body);
        if (answer == RingAnswer::full) return std::nullopt;
        if (answer != RingAnswer::ok) raise_fault(answer);
        return static_cast<std::uint64_t>(body.data() - reinterpret_cast<std::byte*>(&side().memory().header()));
    }

    void commit(std::uint32_t kind) {
        if (const auto answer = side().commit(kind); answer != RingAnswer::ok) raise_fault(answer);
        wake_reader();
    }

    void abort() {
        if (const auto answer = side().abort(); answer != RingAnswer::ok) raise_fault(answer);
    }

    std::uint64_t used_bytes() {
        std::uint64_t bytes = 0;
        if (const auto answer = side().used_bytes(bytes); answer != RingAnswer::ok) raise_fault(answer);
        return bytes;
    }

    void close() {
        if (closed()) return;
        side().close();
        wake_reader();
        give_back();
    }

  private:
    void wake_reader() {
        if (doorbell_fd_ < 0 || !side().take_wakeup()) return;
        const std::uint64_t one = 1;
        // EAGAIN: the count is at its maximum, so the doorbell is readable anyway.
        if (::write(doorbell_fd_, &one, sizeof one) < 0 && errno != EAGAIN) {
            PyErr_SetFromErrno(PyExc_OSError);
            throw nb::python_error();
        }
    }

    int doorbell_fd_;
};

class ReaderHandle : public Handle<RingReader<>> {
  public:
    using Handle::Handle;

    // Kind, offset in the memory and bytes of each message behind the cursor.
    std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> walk(std::size_t messages_max) {
        std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> found;
        RingMessage message;
        while (found.size() < messages_max) {
            const RingAnswer answer = side().next(message);
            if (answer == RingAnswer::ok) {
                found.emplace_back(message.kind, message.offset, message.body.size());
                continue;
            }
            ended_ = answer == RingAnswer::closed;
            // What lies before a fault is whole: it is handed out first, the fault comes at the next call.
            if (!ended_ && answer != RingAnswer::empty && found.empty()) raise_fault(answer);
            break;
        }
        return found;
    }

    void release() {
        if (const auto answer = side().release(side().cursor()); answer != RingAnswer::ok) raise_fault(answer);
    }

    bool ended() const noexcept { return ended_; }

    void close() {
        if (closed()) return;
        side().close();
        give_back();
    }

  private:
    bool ended_ = false;
};

void format_ring(nb::handle memory, std::uint64_t capacity, std::uint64_t generation) {
    const Buffer buffer(memory, PyBUF_WRITABLE);
    if (RingMemory::format(buffer.bytes(), capacity, generation) != RingAnswer::ok) {
        raise("InvalidRequest",
              "a ring needs a capacity that is a power of two within its bounds, memory aligned to 8 bytes for "
              "header and capacity, and a generation above 0");
    }
}

void retire_ring(nb::handle memory, std::uint64_t generation) {
    const Buffer buffer(memory, PyBUF_WRITABLE);
    RingMemory ring;
    RingFault fault;
    if (const auto answer = ring.open(buffer.bytes(), generation, fault); answer != RingAnswer::ok) {
        raise_answer(answer, fault);
    }
    ring.retire();
}

}  // namespace

void bind_ring(nb::module_& m) {
    m.attr("RING_HEADER_BYTES") = ring_layout::RING_HEADER_BYTES;
    m.attr("RING_CAPACITY_MAX") = ring_layout::CAPACITY_MAX;
    m.attr("RING_KIND_PADDING") = ring_layout::KIND_PADDING;
    m.def("ring_body_bytes_max", &ring_layout::body_bytes_max, "capacity"_a);
    m.def("ring_format", &format_ring, "memory"_a, "capacity"_a, "generation"_a);
    m.def("ring_retire", &retire_ring, "memory"_a, "generation"_a);

    nb::class_<WriterHandle>(m, "RingWriter")
        .def(nb::init<nb::handle, std::uint64_t, int>(), "memory"_a, "generation"_a, "doorbell_fd"_a = -1)
        .def("write", &WriterHandle::write, "data"_a, "kind"_a = 0)
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
        .def(nb::init<nb::handle, std::uint64_t>(), "memory"_a, "generation"_a)
        .def("walk", &ReaderHandle::walk, "messages_max"_a)
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
