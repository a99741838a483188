// One bind function per concern; module.cpp calls them all.
#pragma once
#include <nanobind/nanobind.h>

namespace ringlog {
void bind_checksums(nanobind::module_& m);
void bind_scan(nanobind::module_& m);
void bind_encode(nanobind::module_& m);
void bind_builder(nanobind::module_& m);
void bind_decode(nanobind::module_& m);
void bind_arrow(nanobind::module_& m);
void bind_arrow_records(nanobind::module_& m);
void bind_compact(nanobind::module_& m);
void bind_lend(nanobind::module_& m);
void bind_ring(nanobind::module_& m);
}  // namespace ringlog
