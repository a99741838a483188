// Makes bytearrays for results: their memory is not cleared first, because all of it gets written.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>

namespace ringlog {

inline nanobind::bytearray new_bytearray(size_t size) {
    auto bytes = nanobind::steal<nanobind::bytearray>(
        PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
    if (!bytes.is_valid()) throw nanobind::python_error();
    return bytes;
}

template <class T = uint8_t>
T* memory_of(const nanobind::bytearray& bytes) noexcept {
    return reinterpret_cast<T*>(PyByteArray_AS_STRING(bytes.ptr()));
}

}  // namespace ringlog
