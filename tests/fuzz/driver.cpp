// Runs one fuzz target without libFuzzer: mutates a built-in corpus, from a seed, so that any run can be
// repeated.
//
//   fuzz_scan [--seed S] [--runs N] [--seconds T] [FILE…]
//
// Run r of seed S is run 0 of seed S + r: when a run fails, the seed that repeats it alone is printed. With
// files, their contents are run instead.
#include <sanitizer/common_interface_defs.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "corpus.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using ringlog::fuzz::Input;

uint64_t running_seed = 0;

void say_how_to_repeat() {
    std::fprintf(stderr, "to repeat: --runs 1 --seed %llu\n", static_cast<unsigned long long>(running_seed));
}

class Mutator {
public:
    Mutator(uint64_t seed, const std::vector<Input>& corpus) : random_(seed), corpus_(corpus) {}

    Input next() {
        Input data = pick(corpus_);
        const size_t changes = below(6);
        for (size_t i = 0; i < changes; ++i) change(data);
        if (below(2) == 0) ringlog::fuzz::reseal(data);
        return data;
    }

private:
    size_t below(size_t bound) { return bound == 0 ? 0 : static_cast<size_t>(random_() % bound); }

    template <class T>
    const T& pick(const std::vector<T>& from) {
        return from[below(from.size())];
    }

    void change(Input& data) {
        static const std::vector<uint8_t> kBytes = {0, 1, 2, 3, 0x0e, 0x7f, 0x80, 0xfe, 0xff};
        static const std::vector<uint64_t> kNumbers = {0,
                                                       1,
                                                       2,
                                                       7,
                                                       48,
                                                       49,
                                                       61,
                                                       0x7fff,
                                                       0x7fffffff,
                                                       0x80000000,
                                                       0xffffffff,
                                                       0xfffffffe,
                                                       0x7fffffffffffffff,
                                                       ~uint64_t{0}};
        const size_t at = below(data.size() + 1);
        const auto place = data.begin() + static_cast<std::ptrdiff_t>(at);
        const auto left = [&](size_t wanted) { return std::min(wanted, data.size() - at); };
        switch (below(8)) {
            case 0:
                if (at < data.size()) data[at] = static_cast<uint8_t>(data[at] ^ 1u << below(8));
                break;
            case 1:
                if (at < data.size()) data[at] = pick(kBytes);
                break;
            case 2:
                for (size_t i = 0; i < left(4); ++i) data[at + i] = static_cast<uint8_t>(random_());
                break;
            case 3: {  // a big-endian number, anywhere or in a header
                const uint64_t number = pick(kNumbers);
                const size_t width = size_t{1} << below(4);
                const size_t begin = below(2) == 0 ? at : below(61);
                for (size_t i = 0; i < width && begin + i < data.size(); ++i) {
                    data[begin + i] = static_cast<uint8_t>(number >> (8 * (width - 1 - i)));
                }
                break;
            }
            case 4: data.insert(place, below(9), pick(kBytes)); break;
            case 5: data.erase(place, place + static_cast<std::ptrdiff_t>(left(below(9)))); break;
            case 6: data.resize(at); break;
            default: {  // another input's bytes behind or within this one's
                const Input& other = pick(corpus_);
                data.insert(place, other.begin(), other.end());
                break;
            }
        }
    }

    std::mt19937_64 random_;
    const std::vector<Input>& corpus_;
};

int run_files(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
        std::ifstream file(path, std::ios::binary);
        if (!file) {
            std::fprintf(stderr, "cannot read %s\n", path.c_str());
            return 2;
        }
        const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
        LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    uint64_t seed = 1;
    uint64_t runs = 100'000;
    double seconds = 1e9;
    std::vector<std::string> paths;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        const char* const value = i + 1 < argc ? argv[i + 1] : "";
        if (argument == "--seed") {
            seed = std::strtoull(value, nullptr, 10);
        } else if (argument == "--runs") {
            runs = std::strtoull(value, nullptr, 10);
        } else if (argument == "--seconds") {
            seconds = std::strtod(value, nullptr);
        } else {
            paths.emplace_back(argument);
            continue;
        }
        ++i;
    }
    if (!paths.empty()) return run_files(paths);

    __sanitizer_set_death_callback(say_how_to_repeat);
    std::signal(SIGABRT, [](int) { say_how_to_repeat(); });  // an invariant that does not hold aborts
    const std::vector<Input> corpus = ringlog::fuzz::make_corpus();
    const auto began = std::chrono::steady_clock::now();
    const auto elapsed = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    };
    uint64_t run = 0;
    for (; run < runs && elapsed() < seconds; ++run) {
        running_seed = seed + run;
        // A copy of exactly its size, so that the sanitizer sees the first byte read behind it.
        const Input mutated = Mutator(running_seed, corpus).next();
        const std::vector<uint8_t> exact(mutated.begin(), mutated.end());
        LLVMFuzzerTestOneInput(exact.data(), exact.size());
    }
    std::printf("%llu runs in %.1f s, seeds %llu to %llu\n", static_cast<unsigned long long>(run), elapsed(),
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(seed + run - 1));
    return 0;
}
