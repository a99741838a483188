// Borrows columns from Python objects: Arrow arrays by their C data interface, or NumPy offsets and bytes.
#pragma once
#include <nanobind/nanobind.h>

#include <deque>
#include <vector>

#include "arrow_abi.hpp"
#include "columns.hpp"
#include "py_buffer.hpp"

namespace ringlog {

// Keeps alive whatever the columns point into. Lives as long as the call that encodes them.
class BorrowedColumns {
public:
    // Sets `length` to the number of elements. Each raises ValueError for what it cannot read.
    ByteColumn bytes(nanobind::handle object, const char* what, int64_t& length);
    TimestampColumn timestamps(nanobind::handle object, int64_t records);
    HeaderColumn headers(nanobind::handle object, int64_t records);

private:
    struct Arrow {
        const ArrowSchema* schema;
        const ArrowArray* array;
    };
    Arrow import_arrow(nanobind::handle object);
    const PyBuffer& hold(nanobind::handle object);

    std::vector<nanobind::object> objects_;
    std::deque<PyBuffer> buffers_;  // a deque: references into it stay good
};

}  // namespace ringlog
