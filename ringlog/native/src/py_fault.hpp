// Turns a parser's fault into ringlog.errors.CorruptBatch.
#pragma once
#include <nanobind/nanobind.h>

#include <exception>

#include "fault.hpp"

namespace ringlog {

// Thrown by bindings only, never by the cores; Python sees it as CorruptBatch.
class CorruptBatchError : public std::exception {
public:
    explicit CorruptBatchError(const Fault& fault) noexcept : fault_(fault) {}
    const char* what() const noexcept override { return fault_.reason; }
    const Fault& fault() const noexcept { return fault_; }

private:
    Fault fault_;
};

// An instance of CorruptBatch, not raised.
inline nanobind::object to_python(const Fault& fault) {
    return nanobind::module_::import_("ringlog.errors")
        .attr("CorruptBatch")(fault.field, fault.position, fault.reason);
}

}  // namespace ringlog
