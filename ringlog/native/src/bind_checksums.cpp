// Python's way to CRC32C and to Kafka's key hash.
#include <nanobind/ndarray.h>

#include <stdexcept>

#include "bindings.hpp"
#include "crc32c.hpp"
#include "murmur2.hpp"
#include "py_buffer.hpp"

namespace nb = nanobind;

namespace ringlog {
namespace {

// Below this many bytes, giving up the GIL costs more than the checksum itself.
constexpr size_t kReleaseGilBytes = 16 * 1024;

using Checksum = uint32_t (*)(const uint8_t*, size_t, uint32_t) noexcept;

template <Checksum Sum>
uint32_t checksum(nb::handle data, uint32_t seed) {
    const PyBuffer view(data);
    if (view.size() < kReleaseGilBytes) return Sum(view.data(), view.size(), seed);
    const nb::gil_scoped_release released;
    return Sum(view.data(), view.size(), seed);
}

int32_t hash_key(nb::handle key) {
    const PyBuffer view(key);
    return static_cast<int32_t>(murmur2(view.data(), view.size()));
}

template <class Offset>
using Offsets = nb::ndarray<const Offset, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Partitions = nb::ndarray<int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class Offset>
void hash_column(const Offsets<Offset>& offsets, nb::handle data, int32_t partitions, const Partitions& out) {
    const PyBuffer view(data);
    if (partitions <= 0) throw std::invalid_argument("partitions must be positive");
    if (offsets.size() != out.size() + 1)
        throw std::invalid_argument("offsets need one entry more than keys");
    const Offset* const begins = offsets.data();
    int32_t* const result = out.data();
    const size_t count = out.size();
    bool in_bounds = begins[0] >= 0;
    {
        const nb::gil_scoped_release released;
        for (size_t i = 0; in_bounds && i < count; ++i) {
            const Offset begin = begins[i];
            const Offset end = begins[i + 1];
            in_bounds = begin <= end && static_cast<uint64_t>(end) <= view.size();
            if (in_bounds) {
                result[i] = partition_of(view.data() + begin, static_cast<size_t>(end - begin), partitions);
            }
        }
    }
    if (!in_bounds) throw std::invalid_argument("offsets must not decrease and must end within the data");
}

}  // namespace

void bind_checksums(nb::module_& m) {
    m.def("crc32c", &checksum<&crc32c>, nb::arg("data"), nb::arg("seed") = 0);
    m.def("crc32c_unfolded", &checksum<&crc32c_unfolded>, nb::arg("data"), nb::arg("seed") = 0);
    m.def("crc32c_portable", &checksum<&crc32c_portable>, nb::arg("data"), nb::arg("seed") = 0);
    m.def("crc32c_path", &crc32c_path);
    m.def("murmur2", &hash_key, nb::arg("key"));
    m.def("partition_column", &hash_column<int32_t>, nb::arg("offsets"), nb::arg("data"),
          nb::arg("partitions"), nb::arg("out"));
    m.def("partition_column", &hash_column<int64_t>, nb::arg("offsets"), nb::arg("data"),
          nb::arg("partitions"), nb::arg("out"));
}

}  // namespace ringlog
