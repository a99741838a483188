// Python's way to scan, find and stamp batches.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "batch_copy.hpp"
#include "batch_scan.hpp"
#include "bindings.hpp"
#include "py_buffer.hpp"
#include "py_bytes.hpp"
#include "py_fault.hpp"

namespace nb = nanobind;

namespace ringlog {
namespace {

struct Counted {
    size_t batches = 0;
    size_t control_batches = 0;
    int64_t next_offset = -1;  // behind the last batch; -1: there is none
    int64_t end = 0;
    Fault fault;
};

Counted count_batches(Bytes data, const ScanRules& rules) noexcept {
    Counted counted;
    BatchCursor cursor(data, rules);
    BatchRow row;
    while (cursor.next(row)) {
        ++counted.batches;
        counted.control_batches += row.control() ? 1 : 0;
        counted.next_offset = row.last_offset + 1;
    }
    counted.end = cursor.position();
    counted.fault = cursor.fault();
    return counted;
}

[[noreturn]] void raise_changed() { throw std::runtime_error("the buffer changed while it was scanned"); }

// Rows are filled in a second, header-only walk over what was found good: the table is as large as it must
// be, and refused bytes never cost one.
template <class Keep>
nb::bytearray make_table(Bytes data, size_t batches, size_t kept, const ScanRules& checked, Keep&& keep) {
    nb::bytearray bytes = new_bytearray(kept * sizeof(BatchRow));
    uint8_t* to = memory_of(bytes);
    ScanRules rules = checked;
    rules.level = Level::kHeaders;
    BatchCursor cursor(data, rules);
    BatchRow row;
    for (size_t i = 0; i < batches; ++i) {
        if (!cursor.next(row)) raise_changed();
        if (!keep(row)) continue;
        if (kept-- == 0) raise_changed();
        std::memcpy(to, &row, sizeof row);
        to += sizeof row;
    }
    if (kept != 0) raise_changed();
    return bytes;
}

nb::tuple scan(nb::handle data, int level, int64_t bytes_max, int64_t expected_offset, bool dense,
               int32_t min_epoch, bool gapless, bool only_whole) {
    const PyBuffer view(data);
    const ScanRules rules{static_cast<Level>(level), bytes_max, expected_offset, dense, min_epoch, gapless, {}};
    Counted counted;
    {
        const nb::gil_scoped_release released;
        counted = count_batches(view.bytes(), rules);
    }
    if (counted.fault && only_whole) throw CorruptBatchError(counted.fault);
    const Bytes good{view.data(), static_cast<size_t>(counted.end)};
    const auto keep_all = [](const BatchRow&) { return true; };
    return nb::make_tuple(make_table(good, counted.batches, counted.batches, rules, keep_all), counted.end,
                          counted.fault ? CorruptBatchError(counted.fault).to_python() : nb::none(),
                          counted.fault.incomplete);
}

nb::tuple open_batches(nb::handle data, bool check_crc, bool include_control) {
    const PyBuffer view(data);
    ScanRules rules;
    rules.level = check_crc ? Level::kCrc : Level::kHeaders;
    Counted counted;
    {
        const nb::gil_scoped_release released;
        counted = count_batches(view.bytes(), rules);
    }
    if (counted.fault) throw CorruptBatchError(counted.fault);
    nb::list compressed;
    size_t i = 0;
    const auto keep = [&](const BatchRow& row) {
        if (row.control() && !include_control) return false;
        if (row.codec() != 0) compressed.append(i);
        ++i;
        return true;
    };
    const size_t kept = counted.batches - (include_control ? 0 : counted.control_batches);
    const nb::bytearray table = make_table(view.bytes(), counted.batches, kept, rules, keep);
    return nb::make_tuple(table, compressed,
                          counted.next_offset < 0 ? nb::none() : nb::object(nb::int_(counted.next_offset)));
}

void copy_checked(const nb::list& into, nb::handle data) {
    const PyBuffer source(data);
    std::vector<PyBuffer> held;
    std::vector<std::span<uint8_t>> rooms;
    size_t bytes = 0;
    for (const nb::handle object : into) {
        const PyBuffer& room = held.emplace_back(object, PyBuffer::Access::kWrite);
        rooms.emplace_back(room.writable(), room.size());
        bytes += room.size();
    }
    if (bytes != source.size()) throw std::invalid_argument("the copy is as large as what is copied");
    Fault fault;
    {
        const nb::gil_scoped_release released;
        Rooms filled(rooms);
        fault = copy_whole_batches(filled, source.bytes());
    }
    if (fault) throw CorruptBatchError(fault);
}

int64_t find(nb::handle data, int64_t start, int64_t min_offset, int64_t bytes_max) {
    const PyBuffer view(data);
    if (start < 0) throw std::invalid_argument("start must not be negative");
    const nb::gil_scoped_release released;
    return find_batch(view.bytes(), start, min_offset, bytes_max);
}

int64_t stamp(nb::handle data, int64_t base_offset, int32_t leader_epoch,
              std::optional<int64_t> append_time_ms) {
    const PyBuffer view(data, PyBuffer::Access::kWrite);
    if (base_offset < 0) throw std::invalid_argument("base_offset must not be negative");
    if (leader_epoch < -1) throw std::invalid_argument("leader_epoch must be -1 or more");
    const Stamp wanted{base_offset, leader_epoch, append_time_ms.has_value(), append_time_ms.value_or(0)};
    Fault fault;
    int64_t next_offset = -1;
    {
        const nb::gil_scoped_release released;
        next_offset = stamp_batches(view.writable(), view.size(), wanted, fault);
    }
    if (fault) throw CorruptBatchError(fault);
    return next_offset;
}

void raise_corrupt_batch(const std::exception_ptr& thrown, void*) {
    try {
        std::rethrow_exception(thrown);
    } catch (const CorruptBatchError& error) {
        const nb::object python = error.to_python();
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(python.ptr())), python.ptr());
    }
}

}  // namespace

void bind_scan(nb::module_& m) {
    nb::register_exception_translator(raise_corrupt_batch);
    m.attr("BATCH_BYTES_MAX") = kBatchBytesMax;
    m.attr("RECORDS_PER_BATCH_MAX") = kRecordsPerBatchMax;
    m.attr("HEADERS_PER_RECORD_MAX") = kHeadersPerRecordMax;
    m.attr("DECOMPRESSED_BYTES_MAX") = kUnfoldedBytesMax;
    m.def("scan", &scan, nb::arg("data"), nb::arg("level"), nb::arg("bytes_max"), nb::arg("expected_offset"),
          nb::arg("dense"), nb::arg("min_epoch"), nb::arg("gapless"), nb::arg("only_whole"));
    m.def("open_batches", &open_batches, nb::arg("data"), nb::arg("check_crc"), nb::arg("include_control"));
    m.def("copy_checked", &copy_checked, nb::arg("into"), nb::arg("data"));
    m.def("find_batch", &find, nb::arg("data"), nb::arg("start"), nb::arg("min_offset"),
          nb::arg("bytes_max"));
    m.def("stamp", &stamp, nb::arg("data"), nb::arg("base_offset"), nb::arg("leader_epoch"),
          nb::arg("append_time_ms").none());
}

}  // namespace ringlog
