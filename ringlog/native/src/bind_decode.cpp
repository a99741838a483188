// Python's way into the records of batches: as columns, or one by one and only when asked.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "py_buffer.hpp"
#include "py_bytes.hpp"
#include "py_fault.hpp"
#include "py_sections.hpp"
#include "record_decode.hpp"
#include "record_parse.hpp"
#include "record_reread.hpp"

namespace nb = nanobind;

namespace ringlog {
namespace {

// One column of fixed-size elements: a bytearray, or None when the column is not wanted.
template <class T>
struct NumberColumn {
    NumberColumn(bool wanted, int64_t count) {
        if (!wanted) return;
        const nb::bytearray bytes = new_bytearray(static_cast<size_t>(count) * sizeof(T));
        memory = memory_of<T>(bytes);
        object = bytes;
    }

    T* memory = nullptr;
    nb::object object = nb::none();
};

// One column of byte strings: the tuple (offsets, data, valid or None), or None when it is not wanted.
struct BytesColumn {
    BytesColumn(bool wanted, const ByteTotals& totals) {
        if (!wanted) return;
        if (totals.bytes > std::numeric_limits<int32_t>::max() ||
            totals.count >= std::numeric_limits<int32_t>::max()) {
            throw nb::value_error("a column would pass 2 GiB; decode fewer batches at once");
        }
        const NumberColumn<int32_t> offsets(true, totals.count + 1);
        const NumberColumn<uint8_t> data(true, totals.bytes);
        const int64_t valid_bytes = (totals.count + 7) / 8;
        const NumberColumn<uint8_t> valid(totals.nulls > 0, valid_bytes);
        if (valid.memory != nullptr) std::fill_n(valid.memory, valid_bytes, uint8_t{0});
        sink = {offsets.memory, data.memory, valid.memory, totals};
        object = nb::make_tuple(offsets.object, data.object, valid.object);
    }

    ByteSink sink;
    nb::object object = nb::none();
};

nb::tuple decode_columns(nb::handle data, nb::handle rows, nb::handle payloads, bool offset, bool timestamp,
                         bool key, bool value, bool headers) {
    const Sections sections(data, rows, payloads);
    Fault fault;
    size_t faulty = 0;
    Totals totals;
    {
        const nb::gil_scoped_release released;
        totals = measure_sections(sections.all(), headers, fault, faulty);
    }
    if (fault) raise(sections.all()[faulty], fault);

    const int64_t records = totals.records();
    const NumberColumn<int64_t> offsets(offset, records);
    const NumberColumn<int64_t> timestamps(timestamp, records);
    const BytesColumn keys(key, totals.keys);
    const BytesColumn values(value, totals.values);
    const NumberColumn<int32_t> header_offsets(headers, records + 1);
    const bool any_header = totals.header_keys.count > 0;
    const BytesColumn header_keys(any_header, totals.header_keys);
    const BytesColumn header_values(any_header, totals.header_values);
    const ColumnSinks sinks{records,
                            offsets.memory,
                            timestamps.memory,
                            keys.sink,
                            values.sink,
                            header_offsets.memory,
                            header_keys.sink,
                            header_values.sink};
    bool filled = false;
    {
        const nb::gil_scoped_release released;
        filled = fill_sections(sections.all(), sinks);
    }
    if (!filled) throw std::runtime_error("the buffer changed while it was decoded");
    return nb::make_tuple(records, offsets.object, timestamps.object, keys.object, values.object,
                          header_offsets.object, header_keys.object, header_values.object);
}

// Random access to records: where each begins is known, and its objects are made when asked for.
class RecordIndex {
public:
    // `record_type` is a subclass of tuple with five fields: offset, timestamp, key, value, headers.
    RecordIndex(nb::handle data, nb::handle rows, nb::handle payloads, nb::type_object record_type)
        : sections_(data, rows, payloads), record_type_(std::move(record_type)) {
        if (!PyType_IsSubtype(type(), &PyTuple_Type)) throw nb::type_error("record_type must be a tuple");
        int64_t records = 0;
        for (const Section& section : sections_.all()) {
            begins_.push_back(records);
            records += section.row.record_count;
        }
        Fault fault;
        size_t faulty = 0;
        {
            const nb::gil_scoped_release released;
            positions_.reserve(static_cast<size_t>(records));
            index_sections(sections_.all(), positions_, fault, faulty);
        }
        if (fault) raise(sections_.all()[faulty], fault);
    }

    int64_t size() const noexcept { return static_cast<int64_t>(positions_.size()); }

    nb::list slice(int64_t start, int64_t stop) const {
        nb::list records;
        if (start < 0 || stop > size()) throw nb::index_error("records out of range");
        if (start >= stop) return records;
        size_t section = section_of(start);
        for (int64_t i = start; i < stop; ++i) {
            while (section + 1 < begins_.size() && begins_[section + 1] <= i) ++section;
            records.append(make(sections_.all()[section], positions_[static_cast<size_t>(i)]));
        }
        return records;
    }

    nb::object get(int64_t i) const {
        check_in_range(i);
        return make(sections_.all()[section_of(i)], positions_[static_cast<size_t>(i)]);
    }

    int64_t offset(int64_t i) const {
        const Opened opened = open(i);
        return opened.row.base_offset + opened.record.offset_delta;
    }

    int64_t timestamp(int64_t i) const {
        const Opened opened = open(i);
        return Clock(opened.row).at(opened.record.timestamp_delta);
    }

    nb::object key(int64_t i) const { return object_of(open(i).record.key); }

    nb::object value(int64_t i) const { return object_of(open(i).record.value); }

    nb::list headers(int64_t i) const {
        const Opened opened = open(i);
        return headers_of(opened.record, opened.end);
    }

    // The first record at or above an offset; the number of records when all lie below. Offsets only rise:
    // they do within a batch that was accepted, and a log's batches follow each other.
    int64_t find(int64_t wanted) const {
        int64_t low = 0;
        int64_t high = size();
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (offset(middle) < wanted) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

private:
    struct Opened {
        BatchRow row;
        Record record;
        const uint8_t* end;
    };

    void check_in_range(int64_t i) const {
        if (i < 0 || i >= size()) throw nb::index_error("record out of range");
    }

    Opened open(int64_t i) const {
        check_in_range(i);
        return open(sections_.all()[section_of(i)], positions_[static_cast<size_t>(i)]);
    }

    // The record is parsed anew, with all checks: its bytes may lie in memory that others can change.
    static Opened open(const Section& section, uint32_t position) {
        Opened opened{section.row, {}, section.records.data + section.records.size};
        opened.row.record_count = 1;
        RecordParser parser({section.records.data + position, section.records.size - position}, opened.row,
                            false);
        if (!parser.next(opened.record)) throw std::runtime_error("the buffer changed behind its index");
        return opened;
    }

    PyTypeObject* type() const noexcept { return reinterpret_cast<PyTypeObject*>(record_type_.ptr()); }

    size_t section_of(int64_t i) const noexcept {
        const auto behind = std::upper_bound(begins_.begin(), begins_.end(), i);
        return static_cast<size_t>(behind - begins_.begin()) - 1;
    }

    static nb::object object_of(const Field& field) {
        if (field.length < 0) return nb::none();
        return nb::bytes(reinterpret_cast<const char*>(field.data), static_cast<size_t>(field.length));
    }

    static nb::list headers_of(const Record& record, const uint8_t* end) {
        nb::list headers;
        const uint8_t* at = record.headers;
        for (int32_t j = 0; j < record.header_count; ++j) {
            Field key;
            Field value;
            if (!next_header(at, end, key, value))
                throw std::runtime_error("the buffer changed behind its index");
            headers.append(nb::make_tuple(
                nb::str(reinterpret_cast<const char*>(key.data), static_cast<size_t>(key.length)),
                object_of(value)));
        }
        return headers;
    }

    nb::object make(const Section& section, uint32_t position) const {
        const auto [row, record, end] = open(section, position);
        nb::object made = nb::steal(type()->tp_alloc(type(), 5));
        if (!made.is_valid()) throw nb::python_error();
        const nb::object fields[] = {nb::int_(row.base_offset + record.offset_delta),
                                     nb::int_(Clock(row).at(record.timestamp_delta)),
                                     object_of(record.key), object_of(record.value),
                                     headers_of(record, end)};
        for (Py_ssize_t i = 0; i < 5; ++i) PyTuple_SET_ITEM(made.ptr(), i, fields[i].inc_ref().ptr());
        return made;
    }

    Sections sections_;
    nb::object record_type_;
    std::vector<int64_t> begins_;      // per section, the number of records before it
    std::vector<uint32_t> positions_;  // per record, where it begins in its section
};

// The tuples (owner, start) to (owner, stop - 1), each of `type`: a subclass of tuple that adds no fields.
nb::list tuple_pairs(nb::type_object type, nb::handle owner, int64_t start, int64_t stop) {
    auto* const made_type = reinterpret_cast<PyTypeObject*>(type.ptr());
    if (!PyType_IsSubtype(made_type, &PyTuple_Type) || made_type->tp_dictoffset != 0 ||
        made_type->tp_basicsize != PyTuple_Type.tp_basicsize) {
        throw nb::type_error("type must be a tuple with empty __slots__");
    }
    const int64_t count = std::max<int64_t>(stop - start, 0);
    auto pairs = nb::steal<nb::list>(PyList_New(count));
    if (!pairs.is_valid()) throw nb::python_error();
    for (int64_t i = 0; i < count; ++i) {
        PyObject* const number = PyLong_FromLongLong(start + i);
        if (number == nullptr) throw nb::python_error();
        PyObject* const pair = made_type->tp_alloc(made_type, 2);
        if (pair == nullptr) {
            Py_DECREF(number);
            throw nb::python_error();
        }
        PyTuple_SET_ITEM(pair, 0, owner.inc_ref().ptr());
        PyTuple_SET_ITEM(pair, 1, number);
        // The owner knows nothing of its records, so no cycle goes through one: the collector need not look
        // at millions of them.
        PyObject_GC_UnTrack(pair);
        PyList_SET_ITEM(pairs.ptr(), i, pair);
    }
    return pairs;
}

nb::tuple bytes_needed(nb::handle prefix, nb::handle row) {
    const PyBuffer view(prefix);
    const PyBuffer row_view(row);
    if (row_view.size() != sizeof(BatchRow)) throw nb::value_error("row must be one BATCH_TABLE row");
    const Section section{read_row(row_view.data()), view.bytes(), true};
    if (!is_plausible(section.row) || section.row.record_count > kRecordsPerBatchMax ||
        view.size() > static_cast<size_t>(kUnfoldedBytesMax)) {
        throw nb::value_error("row and prefix must be within the bounds of a batch");
    }
    Fault fault;
    const BytesNeeded needed = records_bytes_needed(view.bytes(), section.row, fault);
    if (fault) raise(section, fault);
    return nb::make_tuple(needed.at_least, needed.likely);
}

}  // namespace

void bind_decode(nb::module_& m) {
    m.def("decode_columns", &decode_columns, nb::arg("data"), nb::arg("rows"), nb::arg("payloads").none(),
          nb::arg("offset"), nb::arg("timestamp"), nb::arg("key"), nb::arg("value"), nb::arg("headers"));
    m.def("records_bytes_needed", &bytes_needed, nb::arg("prefix"), nb::arg("row"));
    nb::class_<RecordIndex>(m, "RecordIndex")
        .def(nb::init<nb::handle, nb::handle, nb::handle, nb::type_object>(), nb::arg("data"),
             nb::arg("rows"), nb::arg("payloads").none(), nb::arg("record_type"))
        .def("__len__", &RecordIndex::size)
        .def("get", &RecordIndex::get, nb::arg("i"))
        .def("slice", &RecordIndex::slice, nb::arg("start"), nb::arg("stop"))
        .def("offset", &RecordIndex::offset, nb::arg("i"))
        .def("timestamp", &RecordIndex::timestamp, nb::arg("i"))
        .def("key", &RecordIndex::key, nb::arg("i"))
        .def("value", &RecordIndex::value, nb::arg("i"))
        .def("headers", &RecordIndex::headers, nb::arg("i"))
        .def("find", &RecordIndex::find, nb::arg("offset"));
    m.def("tuple_pairs", &tuple_pairs, nb::arg("type"), nb::arg("owner"), nb::arg("start"), nb::arg("stop"));
}

}  // namespace ringlog
