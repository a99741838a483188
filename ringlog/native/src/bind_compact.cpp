// Python's way to compact batches: the map of keys, and both passes over a buffer.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "batch_compact.hpp"
#include "bindings.hpp"
#include "py_buffer.hpp"
#include "py_bytes.hpp"
#include "py_sections.hpp"

namespace nb = nanobind;

namespace ringlog {
namespace {

Hash128 seed_of(nb::handle seed) {
    const PyBuffer view(seed);
    if (view.size() != sizeof(Hash128)) throw nb::value_error("a seed has 16 bytes");
    return {detail::load_little(view.data()), detail::load_little(view.data() + 8)};
}

class OffsetMap {
public:
    OffsetMap(size_t bytes, nb::handle seed) : map_(bytes, seed_of(seed)) {}

    size_t size() const noexcept { return map_.size(); }
    size_t capacity() const noexcept { return map_.capacity(); }

    int64_t get(nb::handle key) const { return map_.get(PyBuffer(key).bytes()); }

    bool put(nb::handle key, int64_t offset) {
        if (offset < 0 || offset == std::numeric_limits<int64_t>::max()) {
            throw nb::value_error("an offset is not negative, and has another one behind it");
        }
        return map_.put(PyBuffer(key).bytes(), offset);
    }

    int64_t note(nb::handle data, nb::handle rows, nb::handle payloads, int64_t start_offset) {
        const Sections sections(data, rows, payloads);
        int64_t full_at = -1;
        Fault fault;
        const Section* faulty = nullptr;
        {
            const nb::gil_scoped_release released;
            for (const Section& section : sections.all()) {
                full_at = note_keys(section, start_offset, map_, fault);
                if (fault) faulty = &section;
                if (fault || full_at >= 0) break;
            }
        }
        if (faulty != nullptr) raise(*faulty, fault);
        return full_at;
    }

    // (bytes written, records kept, whether anything was left out)
    nb::tuple filter(nb::handle data, nb::handle rows, int64_t end_offset, bool drop_tombstones, nb::handle live,
                     nb::handle out) const {
        const PyBuffer batches(data);
        const Sections sections(data, rows, nb::none());
        const PyBuffer kept_empty(live);
        const PyBuffer room(out, PyBuffer::Access::kWrite);
        const std::vector<int64_t> bases = offsets_of(kept_empty);
        int64_t needed = 0;
        for (const Section& section : sections.all()) {
            if (section.row.codec() != 0) throw nb::value_error("compressed batches are filtered one by one");
            needed += section.row.length;
        }
        if (needed > static_cast<int64_t>(room.size())) throw nb::value_error("out is too small");
        const FilterRules rules{end_offset, drop_tombstones};
        int64_t written = 0;
        int64_t kept = 0;
        bool changed = false;
        Fault fault;
        const Section* faulty = nullptr;
        {
            const nb::gil_scoped_release released;
            for (const Section& section : sections.all()) {
                const bool keep_empty =
                    std::binary_search(bases.begin(), bases.end(), section.row.base_offset);
                const Filtered done = filter_batch(batches.data() + section.row.position, section, map_, rules,
                                                   keep_empty, room.writable() + written, fault);
                if (fault) {
                    faulty = &section;
                    break;
                }
                written += done.bytes;
                kept += done.kept;
                changed |= done.changed;
            }
        }
        if (faulty != nullptr) raise(*faulty, fault);
        return nb::make_tuple(written, kept, changed);
    }

    // None when a compressed batch loses nothing, else what is left of it, uncompressed; empty: nothing.
    nb::object filter_unfolded(nb::handle data, nb::handle row, nb::handle payload, int64_t end_offset,
                               bool drop_tombstones, bool keep_empty) const {
        const PyBuffer batches(data);
        const nb::list payloads = [&] {
            nb::list one;
            one.append(payload);
            return one;
        }();
        const Sections sections(data, row, payloads);
        if (sections.all().size() != 1) throw nb::value_error("one row is wanted");
        const Section& section = sections.all()[0];
        std::vector<uint8_t> memory(std::max(at::kRecords + section.records.size,
                                             static_cast<size_t>(section.row.length)));
        Fault fault;
        Filtered done;
        {
            const nb::gil_scoped_release released;
            done = filter_batch(batches.data() + section.row.position, section, map_,
                                {end_offset, drop_tombstones}, keep_empty, memory.data(), fault);
        }
        if (fault) raise(section, fault);
        if (!done.changed) return nb::none();
        nb::bytearray left = new_bytearray(static_cast<size_t>(done.bytes));
        std::memcpy(memory_of(left), memory.data(), static_cast<size_t>(done.bytes));
        return left;
    }

private:
    static std::vector<int64_t> offsets_of(const PyBuffer& view) {
        if (view.size() % sizeof(int64_t) != 0) throw nb::value_error("live must be offsets of 64 bits");
        std::vector<int64_t> offsets(view.size() / sizeof(int64_t));
        if (!offsets.empty()) std::memcpy(offsets.data(), view.data(), view.size());
        return offsets;
    }

    KeyMap map_;
};

}  // namespace

void bind_compact(nb::module_& m) {
    nb::class_<OffsetMap>(m, "OffsetMap")
        .def(nb::init<size_t, nb::handle>(), nb::arg("bytes"), nb::arg("seed"))
        .def_prop_ro("size", &OffsetMap::size)
        .def_prop_ro("capacity", &OffsetMap::capacity)
        .def("get", &OffsetMap::get, nb::arg("key"))
        .def("put", &OffsetMap::put, nb::arg("key"), nb::arg("offset"))
        .def("note", &OffsetMap::note, nb::arg("data"), nb::arg("rows"), nb::arg("payloads").none(),
             nb::arg("start_offset"))
        .def("filter", &OffsetMap::filter, nb::arg("data"), nb::arg("rows"), nb::arg("end_offset"),
             nb::arg("drop_tombstones"), nb::arg("live"), nb::arg("out"))
        .def("filter_unfolded", &OffsetMap::filter_unfolded, nb::arg("data"), nb::arg("row"),
             nb::arg("payload"), nb::arg("end_offset"), nb::arg("drop_tombstones"), nb::arg("keep_empty"));
}

}  // namespace ringlog
