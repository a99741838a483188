// Holds a C-contiguous view of any Python buffer (bytes, bytearray, memoryview, mmap, NumPy), without a copy.
#pragma once
#include <nanobind/nanobind.h>

#include "bytes.hpp"

namespace ringlog {

class PyBuffer {
public:
    enum class Access { kRead, kWrite };

    // Raises TypeError or BufferError as Python does when the object has no such view.
    explicit PyBuffer(nanobind::handle object, Access access = Access::kRead) {
        const int flags = access == Access::kWrite ? PyBUF_WRITABLE : PyBUF_SIMPLE;
        if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nanobind::python_error();
    }
    PyBuffer(const PyBuffer&) = delete;
    PyBuffer& operator=(const PyBuffer&) = delete;
    PyBuffer(PyBuffer&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
    PyBuffer& operator=(PyBuffer&&) = delete;
    ~PyBuffer() { PyBuffer_Release(&view_); }  // a no-op when view_.obj is null

    const uint8_t* data() const noexcept { return static_cast<const uint8_t*>(view_.buf); }
    uint8_t* writable() const noexcept { return static_cast<uint8_t*>(view_.buf); }
    size_t size() const noexcept { return static_cast<size_t>(view_.len); }
    Bytes bytes() const noexcept { return {data(), size()}; }

private:
    Py_buffer view_{};
};

}  // namespace ringlog
