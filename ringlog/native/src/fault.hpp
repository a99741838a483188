// What a parser says about bytes that it refuses: the field, where it stands, and what is wrong with it.
#pragma once
#include <cstdint>

namespace ringlog {

struct Fault {
    const char* field = nullptr;  // static; null when there is no fault
    int64_t position = 0;         // of the field, in the buffer that was parsed
    const char* reason = nullptr;
    bool incomplete = false;  // nothing is wrong but that the buffer ends before the batch does

    explicit operator bool() const noexcept { return field != nullptr; }
};

}  // namespace ringlog
