// Python's way to make batches, from columns or from sequences of objects.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "batch_scan.hpp"
#include "bindings.hpp"
#include "columns.hpp"
#include "copy_bytes.hpp"
#include "py_batch_fields.hpp"
#include "py_buffer.hpp"
#include "py_bytes.hpp"
#include "py_record_columns.hpp"
#include "record_encode.hpp"

namespace nb = nanobind;

namespace ringlog {
namespace {

// What a caller wants of the memory that a batch is made in.
struct Room {
    int64_t records_target = kUnfoldedBytesMax;  // take only as many records as fit, at least one
    size_t headroom = 0;                         // bytes in front of the batch that the caller fills
    const PyBuffer* into = nullptr;              // where it is made, if it fits there
};

// The GIL is released for the work when nothing of the source is a Python object.
// Returns the batch behind its headroom; or, when it was made in the caller's memory, how many bytes it takes there.
template <bool ReleaseGil, class Source>
nb::object encode(const Source& source, const BatchFields& fields, bool seal, const Room& room) {
    struct MaybeRelease {
        PyThreadState* state = ReleaseGil ? PyEval_SaveThread() : nullptr;
        ~MaybeRelease() {
            if (state != nullptr) PyEval_RestoreThread(state);
        }
    };
    Measured measured;
    {
        const MaybeRelease released;
        measured = measure_records(source, room.records_target);
    }
    if (measured.error != EncodeError::kNone) raise_encode_error(measured.error, measured.record);
    const size_t size = at::kRecords + static_cast<size_t>(measured.records_bytes);
    nb::object made;
    uint8_t* memory = nullptr;
    if (room.into != nullptr && room.into->size() >= room.headroom + size) {
        made = nb::int_(room.headroom + size);
        memory = room.into->writable();
    } else {
        const nb::bytearray batch = new_bytearray(room.headroom + size);
        memory = memory_of(batch);
        made = batch;
    }
    std::memset(memory, 0, room.headroom);
    memory += room.headroom;
    EncodeError error;
    {
        const MaybeRelease released;
        write_header(memory, make_row(fields, measured.count, measured.records_bytes, measured.base_timestamp,
                                      measured.max_timestamp));
        error = write_records(source, measured, memory + at::kRecords);
        if (seal) seal_batch(memory, size);
    }
    if (error != EncodeError::kNone) raise_encode_error(error, 0);
    return made;
}

nb::object encode_columns(nb::handle values, nb::handle keys, nb::handle timestamps, nb::handle headers,
                          int64_t start, int64_t stop, const nb::tuple& fields, bool seal, nb::handle rows,
                          int64_t bytes_target, size_t headroom, nb::handle into) {
    BorrowedColumns borrowed;
    const RecordColumns columns(borrowed, values, keys, timestamps, headers, rows);
    if (stop < 0) stop = columns.count;
    columns.check_range(start, stop);
    if (bytes_target > 0) {
        stop = std::min(stop, start + std::min<int64_t>(kRecordsPerBatchMax, bytes_target / kRecordBytesMin + 1));
    }
    columns.check_rows(start, stop);
    if (stop - start > kRecordsPerBatchMax) throw nb::value_error("more records than a batch may have");
    const auto records = static_cast<int32_t>(stop - start);
    std::optional<PyBuffer> given;
    if (!into.is_none()) given.emplace(into, PyBuffer::Access::kWrite);
    Room room{kUnfoldedBytesMax, headroom, given ? &*given : nullptr};
    if (bytes_target > 0) {
        room.records_target = std::max<int64_t>(bytes_target - int64_t{at::kRecords}, kRecordBytesMin);
    }
    const auto encode_with = [&](auto key_reader, auto value_reader, auto header_reader) {
        if (columns.rows != nullptr) {
            const ColumnSource source{key_reader, value_reader, header_reader, columns.timestamps,
                                      RowList{columns.rows + start}, records};
            return encode<true>(source, read_fields(fields), seal, room);
        }
        const ColumnSource source{key_reader, value_reader, header_reader, columns.timestamps, RowRange{start},
                                  records};
        return encode<true>(source, read_fields(fields), seal, room);
    };

    if (columns.headers.present) return encode_with(columns.keys, columns.values, columns.headers);
    if (NarrowColumn::fits(columns.values)) {
        const NarrowColumn narrow_values(columns.values);
        if (keys.is_none()) return encode_with(NullColumn{}, narrow_values, NoHeaders{});
        if (NarrowColumn::fits(columns.keys))
            return encode_with(NarrowColumn(columns.keys), narrow_values, NoHeaders{});
    }
    return encode_with(columns.keys, columns.values, NoHeaders{});
}

// Records of Python objects. Pointers into bytes and str objects stay good because the GIL is kept.
struct ObjectSource {
    struct Header {
        Piece key;
        Piece value;
    };
    std::vector<Piece> keys;  // empty: all null
    std::vector<Piece> values;
    std::vector<int64_t> timestamps;  // one, or one for each record
    std::vector<Header> headers;
    std::vector<size_t> header_begins;  // empty, or one more than records

    int32_t count() const noexcept { return static_cast<int32_t>(values.size()); }
    Piece key(int32_t i) const noexcept { return keys.empty() ? Piece{} : keys[static_cast<size_t>(i)]; }
    Piece value(int32_t i) const noexcept { return values[static_cast<size_t>(i)]; }
    int64_t timestamp(int32_t i) const noexcept {
        return timestamps.size() == 1 ? timestamps[0] : timestamps[static_cast<size_t>(i)];
    }
    int64_t header_count(int32_t i) const noexcept {
        if (header_begins.empty()) return 0;
        const auto at = static_cast<size_t>(i);
        return static_cast<int64_t>(header_begins[at + 1] - header_begins[at]);
    }
    void header(int32_t i, int64_t j, Piece& key, Piece& value) const noexcept {
        const Header& header = headers[header_begins[static_cast<size_t>(i)] + static_cast<size_t>(j)];
        key = header.key;
        value = header.value;
    }
};

[[noreturn]] void wrong_type(const char* what, size_t i, const char* wanted) {
    throw nb::type_error((std::string(what) + "[" + std::to_string(i) + "] must be " + wanted).c_str());
}

Piece piece_of(PyObject* object, const char* what, size_t i) {
    if (object == Py_None) return {};
    if (!PyBytes_Check(object)) wrong_type(what, i, "bytes or None");
    return {reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(object)), PyBytes_GET_SIZE(object)};
}

int64_t int64_of(nb::handle number) {
    const long long value = PyLong_AsLongLong(number.ptr());
    if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return value;
}

// The items of a sequence, in a tuple of its own: what is read after them may run code that changes a list.
nb::object items_of(nb::handle sequence, const char* message) {
    const auto fast = nb::steal(PySequence_Fast(sequence.ptr(), message));
    if (!fast.is_valid()) throw nb::python_error();
    auto items = nb::steal(PySequence_Tuple(fast.ptr()));
    if (!items.is_valid()) throw nb::python_error();
    return items;
}

size_t count_of(const nb::object& items) { return static_cast<size_t>(PyTuple_GET_SIZE(items.ptr())); }
PyObject* item_of(const nb::object& items, size_t i) {
    return PyTuple_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i));
}

std::vector<Piece> pieces_of(const nb::object& items, const char* what) {
    std::vector<Piece> pieces(count_of(items));
    for (size_t i = 0; i < pieces.size(); ++i) pieces[i] = piece_of(item_of(items, i), what, i);
    return pieces;
}

void read_headers(const nb::object& lists, ObjectSource& source, std::vector<nb::object>& alive) {
    source.header_begins.reserve(count_of(lists) + 1);
    source.header_begins.push_back(0);
    for (size_t i = 0; i < count_of(lists); ++i) {
        if (PyObject* const list = item_of(lists, i); list != Py_None) {
            const nb::object pairs =
                items_of(list, "the headers of a record must be a sequence of pairs");
            alive.push_back(pairs);
            for (size_t j = 0; j < count_of(pairs); ++j) {
                PyObject* const pair = item_of(pairs, j);
                if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 ||
                    !PyUnicode_Check(PyTuple_GET_ITEM(pair, 0))) {
                    wrong_type("headers", i, "a sequence of (str, bytes or None)");
                }
                Py_ssize_t size = 0;
                const char* const key = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(pair, 0), &size);
                if (key == nullptr) throw nb::python_error();
                source.headers.push_back({{reinterpret_cast<const uint8_t*>(key), size},
                                          piece_of(PyTuple_GET_ITEM(pair, 1), "headers", i)});
            }
        }
        source.header_begins.push_back(source.headers.size());
    }
}

nb::object encode_objects(nb::handle values, nb::handle keys, nb::handle timestamps, nb::handle headers,
                          const nb::tuple& fields, bool seal) {
    std::vector<nb::object> alive;
    ObjectSource source;
    const nb::object value_list = items_of(values, "values must be a sequence");
    const size_t count = count_of(value_list);
    if (count == 0) throw nb::value_error("a batch needs at least one record");
    if (count > static_cast<size_t>(kRecordsPerBatchMax))
        throw nb::value_error("more records than a batch may have");
    source.values = pieces_of(value_list, "values");
    if (!keys.is_none()) {
        alive.push_back(items_of(keys, "keys must be a sequence"));
        if (count_of(alive.back()) != count) throw nb::value_error("keys: one for each value is needed");
        source.keys = pieces_of(alive.back(), "keys");
    }
    if (nb::isinstance<nb::int_>(timestamps)) {
        source.timestamps = {int64_of(timestamps)};
    } else {
        const nb::object list = items_of(timestamps, "timestamps must be an int or a sequence of ints");
        if (count_of(list) != count) throw nb::value_error("timestamps: one for each value is needed");
        source.timestamps.reserve(count);
        for (size_t i = 0; i < count; ++i) source.timestamps.push_back(int64_of(item_of(list, i)));
    }
    if (!headers.is_none()) {
        const nb::object lists = items_of(headers, "headers must be a sequence");
        if (count_of(lists) != count) throw nb::value_error("headers: one list for each value is needed");
        read_headers(lists, source, alive);
    }
    return encode<false>(source, read_fields(fields), seal, Room{});
}

// A batch without records, as compaction leaves it: it keeps its range of offsets.
nb::bytearray encode_empty(int64_t last_offset, int64_t max_timestamp, const nb::tuple& fields) {
    const BatchFields wanted = read_fields(fields);
    BatchRow row = make_row(wanted, 0, 0, max_timestamp, max_timestamp);
    row.last_offset = last_offset;
    if (last_offset < wanted.base_offset ||
        last_offset - wanted.base_offset > std::numeric_limits<int32_t>::max()) {
        throw nb::value_error("last_offset must lie at or less than 2^31 above base_offset");
    }
    nb::bytearray batch = new_bytearray(at::kRecords);
    write_header(memory_of(batch), row);
    seal_batch(memory_of(batch), at::kRecords);
    return batch;
}

// The batch with its records replaced by their compressed form.
nb::bytearray fold(nb::handle unfolded, nb::handle compressed, int16_t codec, size_t headroom) {
    const PyBuffer batch(unfolded);
    const PyBuffer payload(compressed);
    if (batch.size() < headroom || batch.size() - headroom < at::kRecords) throw nb::value_error("not a batch");
    const size_t size = at::kRecords + payload.size();
    if (size > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
        throw nb::value_error("too large for a batch");
    nb::bytearray folded = new_bytearray(headroom + size);
    std::memcpy(memory_of(folded), batch.data(), headroom + at::kRecords);
    uint8_t* const memory = memory_of(folded) + headroom;
    copy_bytes(memory + at::kRecords, payload.data(), payload.size());
    store_big(memory + at::kBatchLength, static_cast<int32_t>(size - kLengthPrefixBytes));
    const auto attributes = load_big<int16_t>(memory + at::kAttributes);
    store_big(memory + at::kAttributes,
              static_cast<int16_t>((attributes & ~kCodecMask) | (codec & kCodecMask)));
    seal_batch(memory, size);
    return folded;
}

}  // namespace

void bind_encode(nb::module_& m) {
    m.def("encode_columns", &encode_columns, nb::arg("values"), nb::arg("keys").none(), nb::arg("timestamps"),
          nb::arg("headers").none(), nb::arg("start"), nb::arg("stop"), nb::arg("fields"), nb::arg("seal"),
          nb::arg("rows").none() = nb::none(), nb::arg("bytes_target") = 0, nb::arg("headroom") = 0,
          nb::arg("into").none() = nb::none());
    m.def("encode_objects", &encode_objects, nb::arg("values"), nb::arg("keys").none(), nb::arg("timestamps"),
          nb::arg("headers").none(), nb::arg("fields"), nb::arg("seal"));
    m.def("encode_empty", &encode_empty, nb::arg("last_offset"), nb::arg("max_timestamp"), nb::arg("fields"));
    m.def("fold", &fold, nb::arg("batch"), nb::arg("payload"), nb::arg("codec"),
          nb::arg("headroom") = 0);
}

}  // namespace ringlog
