// Reads Arrow formats: z Z u U w:N for bytes, l and tsm: for timestamps, +l +L of a struct for headers.
#include "py_columns.hpp"

#include <charconv>
#include <string>
#include <string_view>

namespace nb = nanobind;

namespace ringlog {
namespace {

[[noreturn]] void refuse(const char* what, const std::string& reason) {
    throw nb::value_error((std::string(what) + ": " + reason).c_str());
}

const void* buffer_of(const ArrowArray& array, int64_t i, const char* what) {
    if (i >= array.n_buffers) refuse(what, "the Arrow array has too few buffers");
    return array.buffers[i];
}

ByteColumn arrow_bytes(const ArrowSchema& schema, const ArrowArray& array, const char* what) {
    const std::string_view format = schema.format;
    ByteColumn column;
    column.first = array.offset;
    if (format == "n") return column;
    column.validity = static_cast<const uint8_t*>(buffer_of(array, 0, what));
    if (format.starts_with("w:")) {
        column.kind = ByteColumn::Kind::kFixed;
        const auto digits = format.substr(2);
        const auto [end, error] = std::from_chars(digits.begin(), digits.end(), column.width);
        if (error != std::errc{} || end != digits.end() || column.width < 0) refuse(what, "bad Arrow width");
        column.data = static_cast<const uint8_t*>(buffer_of(array, 1, what));
        return column;
    }
    column.kind = ByteColumn::Kind::kOffsets;
    if (format == "z" || format == "u") {
        column.offsets.narrow = static_cast<const int32_t*>(buffer_of(array, 1, what));
    } else if (format == "Z" || format == "U") {
        column.offsets.wide = static_cast<const int64_t*>(buffer_of(array, 1, what));
    } else {
        refuse(what,
               "must be binary, string or fixed-size binary, not Arrow format '" + std::string(format) + "'");
    }
    column.data = static_cast<const uint8_t*>(buffer_of(array, 2, what));
    return column;
}

int64_t element_count(const PyBuffer& offsets, size_t width, const char* what) {
    const size_t entries = offsets.size() / width;
    if (entries == 0) refuse(what, "offsets need one entry more than there are elements");
    return static_cast<int64_t>(entries) - 1;
}

}  // namespace

const PyBuffer& BorrowedColumns::hold(nb::handle object) {
    buffers_.emplace_back(object);
    return buffers_.back();
}

BorrowedColumns::Arrow BorrowedColumns::import_arrow(nb::handle object) {
    const auto capsules = nb::cast<nb::tuple>(object.attr("__arrow_c_array__")());
    if (capsules.size() != 2) throw nb::value_error("__arrow_c_array__ must return two capsules");
    const nb::object schema = capsules[0];
    const nb::object array = capsules[1];
    Arrow arrow{static_cast<const ArrowSchema*>(PyCapsule_GetPointer(schema.ptr(), kSchemaCapsule)),
                static_cast<const ArrowArray*>(PyCapsule_GetPointer(array.ptr(), kArrayCapsule))};
    if (arrow.schema == nullptr || arrow.array == nullptr) throw nb::python_error();
    // Whoever takes an array over leaves its structure behind, with pointers that mean nothing any more.
    if (arrow.schema->release == nullptr || arrow.array->release == nullptr) {
        throw nb::value_error("the Arrow array was given to somebody else before");
    }
    objects_.push_back(schema);
    objects_.push_back(array);
    return arrow;
}

ByteColumn BorrowedColumns::bytes(nb::handle object, const char* what, int64_t& length) {
    // What only a Column has: Arrow's lists have offsets too.
    if (!nb::hasattr(object, "valid")) {
        const Arrow arrow = import_arrow(object);
        length = arrow.array->length;
        return arrow_bytes(*arrow.schema, *arrow.array, what);
    }
    // A Column, whose constructor has seen to types; sizes may have changed since and are asked again.
    ByteColumn column;
    column.kind = ByteColumn::Kind::kOffsets;
    const nb::object offsets = object.attr("offsets");
    const size_t width = nb::cast<size_t>(offsets.attr("itemsize"));
    const PyBuffer& entries = hold(offsets);
    if (width == sizeof(int32_t)) {
        column.offsets.narrow = reinterpret_cast<const int32_t*>(entries.data());
    } else {
        column.offsets.wide = reinterpret_cast<const int64_t*>(entries.data());
    }
    length = element_count(entries, width, what);
    const PyBuffer& data = hold(object.attr("data"));
    column.data = data.data();
    column.data_bytes = static_cast<int64_t>(data.size());
    if (const nb::object valid = object.attr("valid"); !valid.is_none()) {
        const PyBuffer& bitmap = hold(valid);
        if (static_cast<int64_t>(bitmap.size()) < (length + 7) / 8)
            refuse(what, "the validity bitmap is too short");
        column.validity = bitmap.data();
    }
    return column;
}

TimestampColumn BorrowedColumns::timestamps(nb::handle object, int64_t records) {
    constexpr const char* kWhat = "timestamps";
    TimestampColumn column;
    if (nb::isinstance<nb::int_>(object)) {
        column.all = PyLong_AsLongLong(object.ptr());
        if (column.all == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
        return column;
    }
    int64_t length = 0;
    if (nb::hasattr(object, "__arrow_c_array__")) {
        const auto [schema, array] = import_arrow(object);
        const std::string_view format = schema->format;
        // Its format would be that of the numbers in its stead.
        if (schema->dictionary != nullptr) refuse(kWhat, "must not be dictionary-encoded");
        if (format != "l" && !format.starts_with("tsm:")) {
            refuse(kWhat, "must be int64 or timestamp[ms], not Arrow format '" + std::string(format) + "'");
        }
        const auto* const validity = static_cast<const uint8_t*>(buffer_of(*array, 0, kWhat));
        for (int64_t i = 0; validity != nullptr && i < array->length; ++i) {
            if (!bit_is_set(validity, array->offset + i)) refuse(kWhat, "must not be null");
        }
        column.values = static_cast<const int64_t*>(buffer_of(*array, 1, kWhat)) + array->offset;
        length = array->length;
    } else {
        const PyBuffer& values = hold(object);
        column.values = reinterpret_cast<const int64_t*>(values.data());
        length = static_cast<int64_t>(values.size() / sizeof(int64_t));
    }
    if (length != records) refuse(kWhat, "one for each value is needed");
    return column;
}

HeaderColumn BorrowedColumns::headers(nb::handle object, int64_t records) {
    constexpr const char* kWhat = "headers";
    const auto [schema, array] = import_arrow(object);
    const std::string_view format = schema->format;
    if ((format != "+l" && format != "+L") || schema->n_children != 1 || array->n_children != 1 ||
        std::string_view(schema->children[0]->format) != "+s" || schema->children[0]->n_children != 2 ||
        array->children[0]->n_children != 2) {
        refuse(kWhat, "must be Arrow list<struct<key: string, value: binary>>");
    }
    if (array->length != records) refuse(kWhat, "one list for each value is needed");
    const ArrowSchema& pair_schema = *schema->children[0];
    const ArrowArray& pairs = *array->children[0];
    const auto is_named = [&](int64_t i, std::string_view name) {
        return pair_schema.children[i]->name != nullptr && pair_schema.children[i]->name == name;
    };
    if (!is_named(0, "key") || !is_named(1, "value")) refuse(kWhat, "the pairs must be of a key and a value");

    HeaderColumn column;
    column.present = true;
    column.first = array->offset;
    column.validity = static_cast<const uint8_t*>(buffer_of(*array, 0, kWhat));
    const void* const offsets = buffer_of(*array, 1, kWhat);
    if (format == "+l") {
        column.offsets.narrow = static_cast<const int32_t*>(offsets);
    } else {
        column.offsets.wide = static_cast<const int64_t*>(offsets);
    }
    column.pairs = pairs.length;
    column.pair_first = pairs.offset;
    column.pair_validity = static_cast<const uint8_t*>(buffer_of(pairs, 0, kWhat));
    column.keys = arrow_bytes(*pair_schema.children[0], *pairs.children[0], "header keys");
    column.values = arrow_bytes(*pair_schema.children[1], *pairs.children[1], "header values");
    column.keys.first += pairs.offset;
    column.values.first += pairs.offset;
    if (const std::string_view keys = pair_schema.children[0]->format; keys != "u" && keys != "U") {
        refuse(kWhat, "keys must be strings");  // Arrow vouches that those are UTF-8
    }
    return column;
}

}  // namespace ringlog
