// Python's way to gather records: one at a time into a batch that grows, or a list into a column.
#include <nanobind/nanobind.h>

#include <time.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "batch_scan.hpp"
#include "bindings.hpp"
#include "murmur2.hpp"
#include "py_batch_fields.hpp"
#include "py_bytes.hpp"
#include "py_columns.hpp"
#include "py_pieces.hpp"
#include "py_record_columns.hpp"
#include "record_encode.hpp"

namespace nb = nanobind;

namespace ringlog {
namespace {

struct HeaderPieces {
    Piece key;
    Piece value;
};

// One record whose pieces are known, as the encoder reads sources.
struct OneRecord {
    Piece the_key;
    Piece the_value;
    int64_t the_timestamp;
    const std::vector<HeaderPieces>& headers;

    Piece key(int32_t) const noexcept { return the_key; }
    Piece value(int32_t) const noexcept { return the_value; }
    int64_t timestamp(int32_t) const noexcept { return the_timestamp; }
    int64_t header_count(int32_t) const noexcept { return static_cast<int64_t>(headers.size()); }
    void header(int32_t, int64_t j, Piece& key, Piece& value) const noexcept {
        key = headers[static_cast<size_t>(j)].key;
        value = headers[static_cast<size_t>(j)].value;
    }
};

void add_header(PyObject* key, PyObject* value, std::vector<HeaderPieces>& headers,
                std::vector<PyBuffer>& held) {
    if (!PyUnicode_Check(key)) throw nb::type_error("headers: a header's name must be a str");
    const Piece name = user_piece(key, "headers", held);
    headers.push_back({name, user_piece(value, "headers: a value", held)});
}

// `kept` holds what must live as long as the pieces.
void read_headers(nb::handle given, std::vector<HeaderPieces>& headers, std::vector<PyBuffer>& held,
                  nb::object& kept) {
    if (given.is_none()) return;
    // A record that its batch has no room for is read again for the next one, and an iterator would then be empty.
    if (PyIter_Check(given.ptr())) throw nb::type_error("headers must be a dict, or a list of (str, bytes)");
    if (PyDict_Check(given.ptr())) {
        // A buffer's own code could change the dict while it is walked.
        kept = nb::steal(PyDict_Items(given.ptr()));
    } else {
        kept = nb::steal(PySequence_Tuple(given.ptr()));
        if (!kept.is_valid() && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            throw nb::type_error("headers must be a dict, or a list of (str, bytes)");
        }
    }
    if (!kept.is_valid()) throw nb::python_error();
    for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(kept.ptr()); ++j) {
        PyObject* const pair = PySequence_Fast_GET_ITEM(kept.ptr(), j);
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
            throw nb::type_error("headers must be a dict, or a list of (str, bytes)");
        }
        add_header(PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1), headers, held);
    }
}

int64_t clock_ms() noexcept {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// A batch that grows record by record, in the bytearray that it is handed out in.
class BatchBuilder {
public:
    // A record that would pass `bytes_target` is refused unless it is the first; one that would pass
    // `bytes_max` is an error. Futures are tuples of type `future_type`: (state, index).
    BatchBuilder(int64_t bytes_target, int64_t bytes_max, size_t headroom, nb::type_object future_type,
                 nb::object state)
        : bytes_target_(bytes_target),
          bytes_max_(std::min(bytes_max, kBatchBytesMax)),
          headroom_(headroom),
          future_type_(std::move(future_type)),
          state_(std::move(state)) {
        if (!PyType_IsSubtype(type(), &PyTuple_Type)) throw nb::type_error("future_type must be a tuple");
        if (headroom_ > kHeadroomMax) throw nb::value_error("headroom: too much");
        memory_ = new_bytearray(prefix() + kFirstBytes);
        std::memset(memory_of(memory_), 0, headroom_);
    }

    nb::object append(nb::handle value, nb::handle key, nb::handle timestamp, nb::handle headers) {
        std::vector<PyBuffer> held;
        std::vector<HeaderPieces> pairs;
        nb::object kept;
        const Piece value_piece = user_piece(value.ptr(), "value", held);
        const Piece key_piece = user_piece(key.ptr(), "key", held);
        read_headers(headers, pairs, held, kept);
        const OneRecord source{key_piece, value_piece, time_of(timestamp), pairs};
        const nb::object future = nb::steal(type()->tp_alloc(type(), 2));
        if (!future.is_valid()) throw nb::python_error();

        // From here on no Python code runs, no collector either, until the record stands: nobody comes between.
        if (closed_) return nb::none();
        detail::RecordPieces record;
        const int64_t base = count_ == 0 ? source.the_timestamp : base_timestamp_;
        const EncodeError error = detail::fetch(source, count_, base, record);
        if (count_ > 0 && (error == EncodeError::kTimestampRange || count_ == kRecordsPerBatchMax)) {
            return nb::none();
        }
        const int64_t bytes = error == EncodeError::kNone ? detail::bytes_of(record) : 0;
        check(error, bytes);
        if (count_ > 0 && nbytes() + bytes > bytes_target_) return nb::none();
        reserve(static_cast<size_t>(bytes));
        uint8_t* const to = memory_of(memory_) + prefix() + records_bytes_;
        if (detail::write_record(source, count_, record, to) == nullptr) {
            throw nb::value_error("the record changed while it was encoded");
        }
        if (count_ == 0) base_timestamp_ = max_timestamp_ = source.the_timestamp;
        max_timestamp_ = std::max(max_timestamp_, source.the_timestamp);
        PyObject* const index = PyLong_FromLong(count_);
        if (index == nullptr) throw nb::python_error();
        PyTuple_SET_ITEM(future.ptr(), 0, nb::object(state_).release().ptr());
        PyTuple_SET_ITEM(future.ptr(), 1, index);
        timestamps_.push_back(source.the_timestamp);
        records_bytes_ += bytes;
        ++count_;
        return future;
    }

    // Appends the records of a source, whose first has the number of the next record: all of them, or none. Returns
    // how many: 0 when the batch has no room for them, -1 when they take more than `bytes_most`.
    template <class Source>
    int64_t extend(const Source& source, int32_t records, int64_t bytes_most) {
        if (closed_) return 0;
        if (count_ > kRecordsPerBatchMax - records) return 0;
        const int32_t stop = count_ + records;
        const int64_t base = count_ == 0 ? source.timestamp(0) : base_timestamp_;
        int64_t bytes = 0;
        detail::RecordPieces record;
        for (int32_t i = count_; i < stop; ++i) {
            const EncodeError error = detail::fetch(source, i, base, record);
            if (error == EncodeError::kTimestampRange && count_ > 0) return 0;
            if (error != EncodeError::kNone) raise_encode_error(error, i - count_);
            bytes += detail::bytes_of(record);
            if (bytes > bytes_most) return -1;
        }
        if (count_ > 0 && nbytes() + bytes > bytes_target_) return 0;
        check(EncodeError::kNone, bytes);
        reserve(static_cast<size_t>(bytes));
        uint8_t* to = memory_of(memory_) + prefix() + records_bytes_;
        const uint8_t* const end = to + bytes;
        int64_t latest = count_ == 0 ? base : max_timestamp_;
        for (int32_t i = count_; i < stop; ++i) {
            // Another thread may change the columns meanwhile: what does not fit any more is not written.
            if (detail::fetch(source, i, base, record) != EncodeError::kNone || detail::bytes_of(record) > end - to) {
                to = nullptr;
            } else {
                to = detail::write_record(source, i, record, to);
            }
            if (to == nullptr) raise_encode_error(EncodeError::kSourceChanged, i - count_);
            latest = std::max(latest, source.timestamp(i));
        }
        if (to != end) raise_encode_error(EncodeError::kSourceChanged, 0);
        timestamps_.reserve(static_cast<size_t>(stop));
        for (int32_t i = count_; i < stop; ++i) timestamps_.push_back(source.timestamp(i));
        base_timestamp_ = base;
        max_timestamp_ = latest;
        records_bytes_ += bytes;
        count_ = stop;
        return records;
    }

    // Takes no more records, not even one that is being read: what is read runs code that may close its batch.
    void close() noexcept { closed_ = true; }

    // Behind `headroom` bytes, the batch; the builder is empty-handed afterwards.
    nb::bytearray finish(const nb::tuple& fields, bool seal) {
        if (finished_ || count_ == 0) throw nb::value_error("there is no batch to finish");
        const BatchFields wanted = read_fields(fields);
        const auto size = static_cast<size_t>(nbytes());
        if (PyByteArray_Resize(memory_.ptr(), static_cast<Py_ssize_t>(headroom_ + size)) != 0) {
            throw nb::python_error();
        }
        closed_ = finished_ = true;
        nb::bytearray batch = std::move(memory_);
        state_ = nb::none();
        uint8_t* const memory = memory_of(batch) + headroom_;
        const nb::gil_scoped_release released;
        write_header(memory, make_row(wanted, count_, records_bytes_, base_timestamp_, max_timestamp_));
        if (seal) seal_batch(memory, size);
        return batch;
    }

    int32_t count() const noexcept { return count_; }
    int64_t nbytes() const noexcept { return int64_t{at::kRecords} + records_bytes_; }

    // One int64 for each record.
    nb::bytes timestamps() const {
        return nb::bytes(reinterpret_cast<const char*>(timestamps_.data()), timestamps_.size() * sizeof(int64_t));
    }

private:
    static constexpr size_t kFirstBytes = 1024;
    static constexpr size_t kHeadroomMax = 4096;

    PyTypeObject* type() const noexcept { return reinterpret_cast<PyTypeObject*>(future_type_.ptr()); }
    size_t prefix() const noexcept { return headroom_ + at::kRecords; }

    static int64_t time_of(nb::handle timestamp) {
        if (timestamp.is_none()) return clock_ms();
        if (!PyLong_Check(timestamp.ptr())) {
            throw nb::type_error("timestamp must be milliseconds as an int, or None");
        }
        const long long value = PyLong_AsLongLong(timestamp.ptr());
        if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
        if (value < 0) throw nb::value_error("timestamp must not be negative");
        return value;
    }

    void check(EncodeError error, int64_t bytes) const {
        if (error == EncodeError::kHeaderCount) {
            throw nb::value_error("headers: more than a record may have");
        }
        if (error == EncodeError::kTooLarge || int64_t{at::kRecords} + bytes > bytes_max_) {
            const nb::object kind = nb::module_::import_("ringlog.errors").attr("BatchTooLarge");
            const auto text =
                "one record takes more than the " + std::to_string(bytes_max_) + " bytes that a batch may have";
            PyErr_SetString(kind.ptr(), text.c_str());
            throw nb::python_error();
        }
        if (error != EncodeError::kNone) throw nb::value_error("the record cannot be encoded");
    }

    void reserve(size_t bytes) {
        const size_t needed = prefix() + static_cast<size_t>(records_bytes_) + bytes;
        const auto size = static_cast<size_t>(PyByteArray_GET_SIZE(memory_.ptr()));
        if (needed <= size) return;
        const auto target = prefix() + static_cast<size_t>(std::max<int64_t>(bytes_target_, 0));
        const size_t larger = std::max(needed, std::min(size * 2, std::max(target, needed)));
        if (PyByteArray_Resize(memory_.ptr(), static_cast<Py_ssize_t>(larger)) != 0) throw nb::python_error();
    }

    int64_t bytes_target_;
    int64_t bytes_max_;
    size_t headroom_;
    nb::type_object future_type_;
    nb::object state_;
    nb::bytearray memory_;
    bool closed_ = false;
    bool finished_ = false;
    int32_t count_ = 0;
    int64_t records_bytes_ = 0;
    int64_t base_timestamp_ = 0;
    int64_t max_timestamp_ = 0;
    std::vector<int64_t> timestamps_;
};

// Rows of columns as the records behind those that a batch has: the first of them has that number.
struct RowsBehind {
    int64_t start;
    const int64_t* rows;  // null: the rows are those from `start` on
    int32_t records_before;

    int64_t operator()(int32_t i) const noexcept {
        const int64_t place = start + (i - records_before);
        return rows == nullptr ? place : rows[place];
    }
};

int64_t extend_columns(BatchBuilder& builder, nb::handle values, nb::handle keys, nb::handle timestamps,
                       nb::handle headers, int64_t start, int64_t stop, nb::handle rows, int64_t bytes_most) {
    BorrowedColumns borrowed;
    const RecordColumns columns(borrowed, values, keys, timestamps, headers, rows);
    columns.check_range(start, stop);
    if (stop - start > bytes_most / kRecordBytesMin) return -1;
    columns.check_rows(start, stop);
    const auto records = static_cast<int32_t>(stop - start);
    const ColumnSource source{columns.keys,
                              columns.values,
                              columns.headers,
                              columns.timestamps,
                              RowsBehind{start, columns.rows, builder.count()},
                              records};
    return builder.extend(source, records, bytes_most);
}

// A list of bytes, str or None as a column: offsets (int32 where they suffice, else int64), data, bitmap or None.
nb::tuple gather(nb::handle items, const char* what) {
    // A tuple of its own: a buffer's code could change the list.
    const auto kept = nb::steal(PySequence_Tuple(items.ptr()));
    if (!kept.is_valid()) throw nb::python_error();
    const auto count = static_cast<size_t>(PyTuple_GET_SIZE(kept.ptr()));
    std::vector<PyBuffer> held;
    std::vector<Piece> pieces(count);
    int64_t bytes = 0;
    bool any_null = false;
    for (size_t i = 0; i < count; ++i) {
        PyObject* const item = PyTuple_GET_ITEM(kept.ptr(), static_cast<Py_ssize_t>(i));
        pieces[i] = user_piece(item, what, held);
        any_null |= pieces[i].length < 0;
        bytes += std::max<int64_t>(pieces[i].length, 0);
    }
    const bool narrow = bytes <= std::numeric_limits<int32_t>::max();
    const nb::bytearray offsets =
        new_bytearray((count + 1) * (narrow ? sizeof(int32_t) : sizeof(int64_t)));
    const nb::bytearray data = new_bytearray(static_cast<size_t>(bytes));
    nb::object valid = nb::none();
    uint8_t* bitmap = nullptr;
    if (any_null) {
        const nb::bytearray bits = new_bytearray((count + 7) / 8);
        bitmap = memory_of(bits);
        std::memset(bitmap, 0, (count + 7) / 8);
        valid = bits;
    }
    const auto fill = [&](auto* to_offsets) {
        using Offset = std::remove_pointer_t<decltype(to_offsets)>;
        uint8_t* to = memory_of(data);
        int64_t at = 0;
        to_offsets[0] = 0;
        for (size_t i = 0; i < count; ++i) {
            if (const Piece& piece = pieces[i]; piece.length >= 0) {
                copy_bytes(to + at, piece.data, static_cast<size_t>(piece.length));
                at += piece.length;
                if (bitmap != nullptr) bitmap[i >> 3] = static_cast<uint8_t>(bitmap[i >> 3] | 1u << (i & 7));
            }
            to_offsets[i + 1] = static_cast<Offset>(at);
        }
    };
    if (narrow) {
        fill(memory_of<int32_t>(offsets));
    } else {
        fill(memory_of<int64_t>(offsets));
    }
    return nb::make_tuple(offsets, data, valid);
}

// The partition of each key of a column, as int32; -1 for a key that is null.
nb::bytearray key_partitions(nb::handle keys, int32_t partitions) {
    if (partitions <= 0) throw nb::value_error("partitions must be positive");
    BorrowedColumns borrowed;
    int64_t length = 0;
    const ByteColumn column = borrowed.bytes(keys, "keys", length);
    nb::bytearray found = new_bytearray(static_cast<size_t>(length) * sizeof(int32_t));
    auto* const out = memory_of<int32_t>(found);
    bool whole = true;
    {
        const nb::gil_scoped_release released;
        for (int64_t i = 0; i < length && whole; ++i) {
            const Piece key = column.at(i);
            whole = key.length >= Piece::kNull && key.length <= kUnfoldedBytesMax;
            if (!whole) break;
            out[i] =
                key.length < 0 ? -1 : partition_of(key.data, static_cast<size_t>(key.length), partitions);
        }
    }
    if (!whole) throw nb::value_error("keys: offsets must not decrease and must end within the data");
    return found;
}

// Gives a sealed batch behind `headroom` bytes its producer's fields.
void seal_for(nb::handle data, size_t headroom, int64_t producer_id, int16_t producer_epoch,
              int32_t base_sequence) {
    const PyBuffer buffer(data, PyBuffer::Access::kWrite);
    if (buffer.size() < headroom || buffer.size() - headroom < at::kRecords) {
        throw nb::value_error("not a batch");
    }
    uint8_t* const batch = buffer.writable() + headroom;
    stamp_producer(batch, buffer.size() - headroom, {producer_id, producer_epoch, base_sequence});
}

}  // namespace

void bind_builder(nb::module_& m) {
    m.def("seal_for", &seal_for, nb::arg("data"), nb::arg("headroom"), nb::arg("producer_id"),
          nb::arg("producer_epoch"), nb::arg("base_sequence"));
    m.def("key_partitions", &key_partitions, nb::arg("keys"), nb::arg("partitions"));
    m.def("gather", &gather, nb::arg("items"), nb::arg("what"));
    nb::class_<BatchBuilder>(m, "BatchBuilder")
        .def(nb::init<int64_t, int64_t, size_t, nb::type_object, nb::object>(), nb::arg("bytes_target"),
             nb::arg("bytes_max"), nb::arg("headroom"), nb::arg("future_type"), nb::arg("state").none())
        .def("append", &BatchBuilder::append, nb::arg("value").none(), nb::arg("key").none(),
             nb::arg("timestamp").none(), nb::arg("headers").none())
        .def("extend", &extend_columns, nb::arg("values"), nb::arg("keys").none(), nb::arg("timestamps"),
             nb::arg("headers").none(), nb::arg("start"), nb::arg("stop"), nb::arg("rows").none(),
             nb::arg("bytes_most"))
        .def("close", &BatchBuilder::close)
        .def("finish", &BatchBuilder::finish, nb::arg("fields"), nb::arg("seal"))
        .def_prop_ro("count", &BatchBuilder::count)
        .def_prop_ro("nbytes", &BatchBuilder::nbytes)
        .def_prop_ro("timestamps", &BatchBuilder::timestamps);
}

}  // namespace ringlog
