// A single-producer, single-consumer ring of byte messages in shared memory: all of it, without Python.
//
// Read ring_layout.hpp for the bytes, ring_writer.hpp for how a message becomes visible, ring_reader.hpp for
// who owns it afterwards.
#pragma once
#include "ring_layout.hpp"
#include "ring_memory.hpp"
#include "ring_probe.hpp"
#include "ring_reader.hpp"
#include "ring_writer.hpp"
