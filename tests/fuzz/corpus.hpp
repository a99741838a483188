// Right batches of every kind, made by the encoder's core: what the driver mutates.
#pragma once
#include <cstdint>
#include <vector>

namespace ringlog::fuzz {

using Input = std::vector<uint8_t>;

std::vector<Input> make_corpus();

// Makes lengths and CRCs right again, as far as batches can be walked to, so that mutated records are
// reached.
void reseal(Input& data);

}  // namespace ringlog::fuzz
