// The extension module `ringlog.native._kernel`: each concern binds itself.
#include <nanobind/nanobind.h>

#include "bindings.hpp"

NB_MODULE(_kernel, m) {
    // At exit, a traceback or a global of the program may still hold a client. That is no leak of ours, and a page
    // about it on stderr would only alarm.
    nanobind::set_leak_warnings(false);
    m.doc() = "ringlog's native kernel: batches, checksums, rings";
    ringlog::bind_checksums(m);
    ringlog::bind_scan(m);
    ringlog::bind_encode(m);
    ringlog::bind_builder(m);
    ringlog::bind_decode(m);
    ringlog::bind_arrow(m);
    ringlog::bind_arrow_records(m);
    ringlog::bind_compact(m);
    ringlog::bind_ring(m);
    ringlog::bind_lend(m);
}
