#include "bindings.hpp"
namespace ringlog { void bind_checksums(nanobind::module_&) {} }
