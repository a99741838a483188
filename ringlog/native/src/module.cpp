// The extension module `ringlog.native._kernel`: each concern binds itself.
#include <nanobind/nanobind.h>

#include "bindings.hpp"

NB_MODULE(_kernel, m) {
    m.doc() = "ringlog's native kernel: batches, checksums, rings";
    ringlog::bind_checksums(m);
    ringlog::bind_ring(m);
}
