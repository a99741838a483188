// Pieces of Python objects as users give them: bytes, str (as UTF-8), anything with a buffer, or None.
#pragma once
#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "py_buffer.hpp"
#include "record_encode.hpp"

namespace ringlog {

// The bytes of an object, good while the object lives, the GIL is kept and `held` is not destroyed. `what`
// names it in a TypeError.
inline Piece user_piece(PyObject* object, const char* what, std::vector<PyBuffer>& held) {
    if (PyBytes_CheckExact(object)) {
        return {reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(object)), PyBytes_GET_SIZE(object)};
    }
    if (object == Py_None) return {};
    if (PyUnicode_Check(object)) {
        Py_ssize_t size = 0;
        const char* const text = PyUnicode_AsUTF8AndSize(object, &size);
        if (text == nullptr) throw nanobind::python_error();
        return {reinterpret_cast<const uint8_t*>(text), size};
    }
    if (!PyObject_CheckBuffer(object)) {
        throw nanobind::type_error((std::string(what) + " must be bytes, str or None, not " +
                                    Py_TYPE(object)->tp_name)
                                       .c_str());
    }
    held.emplace_back(nanobind::handle(object));
    return {held.back().data(), static_cast<int64_t>(held.back().size())};
}

}  // namespace ringlog
