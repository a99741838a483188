// Python's way from batches to Arrow: the columns of poll_arrow() in one step.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "arrow_records.hpp"
#include "bindings.hpp"
#include "py_sections.hpp"

namespace nb = nanobind;

namespace ringlog {
namespace {

constexpr const char* kTooLarge = "a column would pass 2 GiB; decode fewer batches at once";

// A topic's name, repeated as often as any batch needed it. Changed under the GIL; what batches hold stays as it is.
class TopicText {
public:
    explicit TopicText(std::string name) : name_(std::move(name)) {}

    std::shared_ptr<const RepeatedText> at_least(int64_t count) {
        if (known_ != nullptr && known_->count() >= count) return known_;
        if (!RepeatedText::fits(name_, count)) throw nb::value_error(kTooLarge);
        const int64_t ample = std::max<int64_t>(2 * count, 16 * 1024);
        return known_ = std::make_shared<RepeatedText>(name_, RepeatedText::fits(name_, ample) ? ample : count);
    }

private:
    std::string name_;
    std::shared_ptr<const RepeatedText> known_;
};

// An ArrowArray until somebody takes it over.
class ArrowRecords {
public:
    ArrowRecords(nb::handle data, nb::handle rows, nb::handle payloads, TopicText& topic, int32_t partition) {
        const Sections sections(data, rows, payloads);
        int64_t records = 0;
        for (const Section& section : sections.all()) records += section.row.record_count;
        const RecordOrigin origin{topic.at_least(records), partition};
        if (!sections.all().empty()) first_offset_ = sections.all().front().row.base_offset;
        Fault fault;
        size_t faulty = 0;
        bool fits = true;
        bool filled = false;
        {
            const nb::gil_scoped_release released;
            const Totals totals = measure_sections(sections.all(), true, fault, faulty);
            fits = fits_arrow(totals);
            filled = !fault && fits && make_arrow_records(sections.all(), totals, origin, array_);
        }
        if (fault) raise(sections.all()[faulty], fault);
        if (!fits) throw nb::value_error(kTooLarge);
        if (!filled) throw std::runtime_error("the buffer changed while it was decoded");
    }
    ArrowRecords(const ArrowRecords&) = delete;
    ArrowRecords& operator=(const ArrowRecords&) = delete;
    ~ArrowRecords() {
        if (array_.release != nullptr) array_.release(&array_);
    }

    uintptr_t address() noexcept { return reinterpret_cast<uintptr_t>(&array_); }
    int64_t first_offset() const noexcept { return first_offset_; }

private:
    ArrowArray array_{};
    int64_t first_offset_ = 0;
};

}  // namespace

void bind_arrow_records(nb::module_& m) {
    nb::class_<TopicText>(m, "TopicText").def(nb::init<std::string>(), nb::arg("name"));
    nb::class_<ArrowRecords>(m, "ArrowRecords")
        .def(nb::init<nb::handle, nb::handle, nb::handle, TopicText&, int32_t>(), nb::arg("data"),
             nb::arg("rows"), nb::arg("payloads").none(), nb::arg("topic"), nb::arg("partition"))
        .def_prop_ro("address", &ArrowRecords::address)
        .def_prop_ro("first_offset", &ArrowRecords::first_offset);
}

}  // namespace ringlog
