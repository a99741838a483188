// Turns a parser's fault into ringlog.errors.CorruptBatch.
#pragma once
#include <nanobind/nanobind.h>

#include <exception>
#include <string>

#include "fault.hpp"

namespace ringlog {

// Thrown by bindings only, never by the cores; Python sees it as CorruptBatch.
class CorruptBatchError : public std::exception {
public:
    explicit CorruptBatchError(const Fault& fault) : fault_(fault), reason_(fault.reason) {}

    // A fault within unfolded records: those have no place in the buffer, so the error names both where
    // the compressed records stand and the byte among the unfolded ones.
    CorruptBatchError(const Fault& fault, int64_t records_position)
        : fault_(fault),
          reason_(std::string(fault.reason) + ", at byte " + std::to_string(fault.position) +
                  " when unfolded") {
        fault_.position = records_position;
    }

    const char* what() const noexcept override { return reason_.c_str(); }

    // An instance of CorruptBatch, not raised.
    nanobind::object to_python() const {
        return nanobind::module_::import_("ringlog.errors")
            .attr("CorruptBatch")(fault_.field, fault_.position, reason_.c_str());
    }

private:
    Fault fault_;
    std::string reason_;
};

}  // namespace ringlog
