// What every fuzz target uses to state its invariant.
#pragma once
#include <cstdio>
#include <cstdlib>

// Always on: a fuzzer whose invariant is compiled out proves nothing.
#define REQUIRE(condition)                                                                      \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
            std::abort();                                                                       \
        }                                                                                       \
    } while (false)
