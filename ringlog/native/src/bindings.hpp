// One bind function per concern; module.cpp calls them all.
#pragma once
#include <nanobind/nanobind.h>

namespace ringlog {
void bind_checksums(nanobind::module_& m);
void bind_ring(nanobind::module_& m);
}  // namespace ringlog
