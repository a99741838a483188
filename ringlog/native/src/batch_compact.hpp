// Compaction of batches: notes the keys of records, and copies batches without the records that are superseded.
#pragma once
#include <cstdint>

#include "key_map.hpp"
#include "record_decode.hpp"

namespace ringlog {

// Puts the keys of a batch's records into the map, from an offset on. Returns the first offset that was not
// noted because the map is full; -1: all were. On a fault, set, the map may hold some of them.
int64_t note_keys(const Section& section, int64_t start_offset, KeyMap& map, Fault& fault) noexcept;

struct FilterRules {
    int64_t end_offset;       // records from here on are kept: the map says nothing of them
    bool drop_tombstones;     // records without a value have been kept long enough
};

struct Filtered {
    int64_t bytes = 0;  // written; 0: nothing of the batch is left
    int32_t kept = 0;   // records
    bool changed = false;
};

// Writes a batch without the records that the map has a later one for, and without records that are tombstones,
// if the rules say so. Offsets stay. A batch that loses nothing is copied as it is. One that loses everything is
// left out, unless `keep_empty`: then its header stays. Records that are unfolded stay so, and the batch says it.
//
// `batch`: its bytes, row.length of them. `to` has room for kRecords + section.records.size bytes, and for
// row.length bytes; never more are written. On a fault, set, what was written means nothing.
Filtered filter_batch(const uint8_t* batch, const Section& section, const KeyMap& map, const FilterRules& rules,
                      bool keep_empty, uint8_t* to, Fault& fault) noexcept;

}  // namespace ringlog
