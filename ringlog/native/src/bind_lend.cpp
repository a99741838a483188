// Lends the memory of Python buffers to a library that reads it later, on a thread that knows nothing of Python.
//
// The borrower is given `give_back`, which only marks a loan; the buffer itself is let go of by whoever holds the GIL and
// looks next. What is never given back is never freed: a program that ends must not pull memory from under a thread that
// still sends it.
#include <nanobind/stl/tuple.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "bindings.hpp"
#include "py_buffer.hpp"

namespace nb = nanobind;

namespace ringlog {
namespace {

struct Loan {
    explicit Loan(nb::handle object) : buffer(object) {}

    PyBuffer buffer;
    std::atomic<bool> is_back{false};
};

// All loans of this process, changed under the GIL. On the heap for good: nothing of it is destroyed at exit.
std::vector<std::unique_ptr<Loan>>& loans() {
    static auto* const all = new std::vector<std::unique_ptr<Loan>>();
    return *all;
}

extern "C" void give_back(void* /*data*/, void* loan) {
    static_cast<Loan*>(loan)->is_back.store(true, std::memory_order_release);
}

size_t take_back() {
    auto& all = loans();
    // Letting go of a buffer may run Python, which may lend: nothing is freed while the list is walked.
    std::vector<std::unique_ptr<Loan>> returned;
    size_t kept = 0;
    for (auto& loan : all) {
        if (loan->is_back.load(std::memory_order_acquire)) {
            returned.push_back(std::move(loan));
        } else {
            std::swap(all[kept++], loan);
        }
    }
    all.resize(kept);
    return kept;
}

std::tuple<uintptr_t, size_t, uintptr_t> lend(nb::handle object) {
    take_back();
    auto loan = std::make_unique<Loan>(object);
    const auto* const data = loan->buffer.data();
    const size_t size = loan->buffer.size();
    Loan* const handle = loan.get();
    loans().push_back(std::move(loan));
    return {reinterpret_cast<uintptr_t>(data), size, reinterpret_cast<uintptr_t>(handle)};
}

}  // namespace

void bind_lend(nb::module_& m) {
    m.def("lend", &lend, nb::arg("buffer"));
    m.def("take_back", &take_back);
    m.attr("GIVE_BACK") = reinterpret_cast<uintptr_t>(&give_back);
}

}  // namespace ringlog
