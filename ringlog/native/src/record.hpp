// A record as the readers see it: numbers, and pointers into the bytes that were read.
#pragma once
#include <cstdint>

namespace ringlog {

// Bytes or null.
struct Field {
    const uint8_t* data = nullptr;
    int32_t length = -1;  // -1: null

    int64_t bytes() const noexcept { return length > 0 ? length : 0; }
    bool is_null() const noexcept { return length < 0; }
};

struct Record {
    const uint8_t* begin = nullptr;
    int64_t timestamp_delta = 0;
    int32_t offset_delta = 0;
    Field key;
    Field value;
    int32_t header_count = 0;
    const uint8_t* headers = nullptr;  // where the first header begins
};

}  // namespace ringlog
