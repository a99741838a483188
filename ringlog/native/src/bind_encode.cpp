// Python's way to make batches, from columns or from sequences of objects.
#include <nanobind/nanobind.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "batch_scan.hpp"
#include "bindings.hpp"
#include "columns.hpp"
#include "copy_bytes.hpp"
#include "py_bytes.hpp"
#include "py_columns.hpp"
#include "record_encode.hpp"

namespace nb = nanobind;

namespace ringlog {
namespace {

// What a batch says beside its records.
struct BatchFields {
    int64_t base_offset;
    int32_t leader_epoch;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t base_sequence;
    int16_t attributes;
};

BatchFields read_fields(const nb::tuple& fields) {
    if (fields.size() != 6) throw nb::value_error("fields must have six entries");
    return {nb::cast<int64_t>(fields[0]), nb::cast<int32_t>(fields[1]), nb::cast<int64_t>(fields[2]),
            nb::cast<int16_t>(fields[3]), nb::cast<int32_t>(fields[4]), nb::cast<int16_t>(fields[5])};
}

[[noreturn]] void raise(EncodeError error, int32_t record) {
    const char* reason = "";
    switch (error) {
        case EncodeError::kTooLarge: {
            const nb::object type = nb::module_::import_("ringlog.errors").attr("BatchTooLarge");
            const auto text = "the records up to number " + std::to_string(record) + " take more than " +
                              std::to_string(kUnfoldedBytesMax) + " bytes; cut the columns into more batches";
            PyErr_SetString(type.ptr(), text.c_str());
            throw nb::python_error();
        }
        case EncodeError::kTimestampRange: reason = "timestamps are too far apart"; break;
        case EncodeError::kColumnOffsets:
            reason = "offsets must not decrease and must end within the data";
            break;
        case EncodeError::kHeaderCount: reason = "more headers than a record may have"; break;
        case EncodeError::kHeaderKeyNull: reason = "a header's key must not be null"; break;
        case EncodeError::kSourceChanged: reason = "the columns changed while they were encoded"; break;
        case EncodeError::kNone: break;
    }
    throw nb::value_error(("record " + std::to_string(record) + ": " + reason).c_str());
}

BatchRow make_row(const BatchFields& fields, int32_t count, const Measured& measured) noexcept {
    BatchRow row{};
    row.base_offset = fields.base_offset;
    row.last_offset = fields.base_offset + (count > 0 ? count - 1 : 0);
    row.base_timestamp = measured.base_timestamp;
    row.max_timestamp = measured.max_timestamp;
    row.producer_id = fields.producer_id;
    row.length = static_cast<int32_t>(int64_t{at::kRecords} + measured.records_bytes);
    row.leader_epoch = fields.leader_epoch;
    row.base_sequence = fields.base_sequence;
    row.record_count = count;
    row.producer_epoch = fields.producer_epoch;
    row.attributes = fields.attributes;
    return row;
}

// The GIL is released for the work when nothing of the source is a Python object.
template <bool ReleaseGil, class Source>
nb::bytearray encode(const Source& source, const BatchFields& fields, bool seal) {
    struct MaybeRelease {
        PyThreadState* state = ReleaseGil ? PyEval_SaveThread() : nullptr;
        ~MaybeRelease() {
            if (state != nullptr) PyEval_RestoreThread(state);
        }
    };
    Measured measured;
    {
        const MaybeRelease released;
        measured = measure_records(source);
    }
    if (measured.error != EncodeError::kNone) raise(measured.error, measured.record);
    const size_t size = at::kRecords + static_cast<size_t>(measured.records_bytes);
    nb::bytearray batch = new_bytearray(size);
    uint8_t* const memory = memory_of(batch);
    EncodeError error;
    {
        const MaybeRelease released;
        write_header(memory, make_row(fields, source.count(), measured));
        error = write_records(source, measured, memory + at::kRecords);
        if (seal) seal_batch(memory, size);
    }
    if (error != EncodeError::kNone) raise(error, 0);
    return batch;
}

nb::bytearray encode_columns(nb::handle values, nb::handle keys, nb::handle timestamps, nb::handle headers,
                             int64_t start, int64_t stop, const nb::tuple& fields, bool seal) {
    BorrowedColumns borrowed;
    int64_t length = 0;
    const ByteColumn value_column = borrowed.bytes(values, "values", length);
    ByteColumn key_column;
    if (!keys.is_none()) {
        int64_t key_count = 0;
        key_column = borrowed.bytes(keys, "keys", key_count);
        if (key_count != length) throw nb::value_error("keys: one for each value is needed");
    }
    const TimestampColumn times = borrowed.timestamps(timestamps, length);
    if (stop < 0) stop = length;
    if (start < 0 || start >= stop || stop > length) {
        throw nb::value_error("the range must hold at least one record and lie within the columns");
    }
    if (stop - start > kRecordsPerBatchMax) throw nb::value_error("more records than a batch may have");
    const auto records = static_cast<int32_t>(stop - start);
    const auto encode_with = [&](auto key_reader, auto value_reader, auto header_reader) {
        const ColumnSource source{key_reader, value_reader, header_reader, times, start, records};
        return encode<true>(source, read_fields(fields), seal);
    };

    if (!headers.is_none()) return encode_with(key_column, value_column, borrowed.headers(headers, length));
    if (NarrowColumn::fits(value_column)) {
        const NarrowColumn narrow_values(value_column);
        if (keys.is_none()) return encode_with(NullColumn{}, narrow_values, NoHeaders{});
        if (NarrowColumn::fits(key_column))
            return encode_with(NarrowColumn(key_column), narrow_values, NoHeaders{});
    }
    return encode_with(key_column, value_column, NoHeaders{});
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

// A list or tuple as it is, or a list made of any other sequence, which must then be kept alive.
nb::object fast_sequence(nb::handle sequence, const char* message) {
    auto fast = nb::steal(PySequence_Fast(sequence.ptr(), message));
    if (!fast.is_valid()) throw nb::python_error();
    return fast;
}

size_t fast_size(const nb::object& fast) { return static_cast<size_t>(PySequence_Fast_GET_SIZE(fast.ptr())); }
PyObject* fast_item(const nb::object& fast, size_t i) {
    return PySequence_Fast_GET_ITEM(fast.ptr(), static_cast<Py_ssize_t>(i));
}

std::vector<Piece> pieces_of(const nb::object& fast, const char* what) {
    std::vector<Piece> pieces(fast_size(fast));
    for (size_t i = 0; i < pieces.size(); ++i) pieces[i] = piece_of(fast_item(fast, i), what, i);
    return pieces;
}

void read_headers(const nb::object& lists, ObjectSource& source, std::vector<nb::object>& alive) {
    source.header_begins.reserve(fast_size(lists) + 1);
    source.header_begins.push_back(0);
    for (size_t i = 0; i < fast_size(lists); ++i) {
        if (PyObject* const list = fast_item(lists, i); list != Py_None) {
            const nb::object pairs =
                fast_sequence(list, "the headers of a record must be a sequence of pairs");
            alive.push_back(pairs);
            for (size_t j = 0; j < fast_size(pairs); ++j) {
                PyObject* const pair = fast_item(pairs, j);
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

nb::bytearray encode_objects(nb::handle values, nb::handle keys, nb::handle timestamps, nb::handle headers,
                             const nb::tuple& fields, bool seal) {
    std::vector<nb::object> alive;
    ObjectSource source;
    const nb::object value_list = fast_sequence(values, "values must be a sequence");
    const size_t count = fast_size(value_list);
    if (count == 0) throw nb::value_error("a batch needs at least one record");
    if (count > static_cast<size_t>(kRecordsPerBatchMax))
        throw nb::value_error("more records than a batch may have");
    source.values = pieces_of(value_list, "values");
    if (!keys.is_none()) {
        alive.push_back(fast_sequence(keys, "keys must be a sequence"));
        if (fast_size(alive.back()) != count) throw nb::value_error("keys: one for each value is needed");
        source.keys = pieces_of(alive.back(), "keys");
    }
    if (nb::isinstance<nb::int_>(timestamps)) {
        source.timestamps = {int64_of(timestamps)};
    } else {
        const nb::object list = fast_sequence(timestamps, "timestamps must be an int or a sequence of ints");
        if (fast_size(list) != count) throw nb::value_error("timestamps: one for each value is needed");
        source.timestamps.reserve(count);
        for (size_t i = 0; i < count; ++i) source.timestamps.push_back(int64_of(fast_item(list, i)));
    }
    if (!headers.is_none()) {
        const nb::object lists = fast_sequence(headers, "headers must be a sequence");
        if (fast_size(lists) != count) throw nb::value_error("headers: one list for each value is needed");
        read_headers(lists, source, alive);
    }
    return encode<false>(source, read_fields(fields), seal);
}

// A batch without records, as compaction leaves it: it keeps its range of offsets.
nb::bytearray encode_empty(int64_t last_offset, int64_t max_timestamp, const nb::tuple& fields) {
    const BatchFields wanted = read_fields(fields);
    Measured measured;
    measured.base_timestamp = measured.max_timestamp = max_timestamp;
    BatchRow row = make_row(wanted, 0, measured);
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
nb::bytearray fold(nb::handle unfolded, nb::handle compressed, int16_t codec) {
    const PyBuffer batch(unfolded);
    const PyBuffer payload(compressed);
    if (batch.size() < at::kRecords) throw nb::value_error("not a batch");
    const size_t size = at::kRecords + payload.size();
    if (size > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
        throw nb::value_error("too large for a batch");
    nb::bytearray folded = new_bytearray(size);
    uint8_t* const memory = memory_of(folded);
    std::memcpy(memory, batch.data(), at::kRecords);
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
          nb::arg("headers").none(), nb::arg("start"), nb::arg("stop"), nb::arg("fields"), nb::arg("seal"));
    m.def("encode_objects", &encode_objects, nb::arg("values"), nb::arg("keys").none(), nb::arg("timestamps"),
          nb::arg("headers").none(), nb::arg("fields"), nb::arg("seal"));
    m.def("encode_empty", &encode_empty, nb::arg("last_offset"), nb::arg("max_timestamp"), nb::arg("fields"));
    m.def("fold", &fold, nb::arg("batch"), nb::arg("payload"), nb::arg("codec"));
}

}  // namespace ringlog
