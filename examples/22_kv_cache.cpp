// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A cache of keys and values for many sequences: each grows token by token, where it is, and gives way if memory runs out.
//
// A server answers requests of unknown length. Each token adds to its sequence's cache, and every step reads all of it.
// Allocated whole, each sequence holds memory for the longest answer there may be. A stable_buffer holds pages for the tokens
// that there are. Both ways have the same budget. A row shows a moment: a '#' is a page's worth of tokens, a '.' room for more.
//
// Sources: this file. Libraries: the CUDA runtime, or the simulated device.

#include <cstdio>
#include <deque>
#include <exception>
#include <string>
#include <vector>
#include <weir/stable.hpp>
#include <weir/weir.hpp>

constexpr std::size_t page_bytes = 2 * weir::MiB;
constexpr std::size_t token_bytes = 32 * weir::KiB; // keys and values of all layers
constexpr std::size_t most_tokens = 1024;           // of an answer: 32 MiB
constexpr std::size_t budget_bytes = 128 * weir::MiB;
constexpr std::size_t requests = 40;

// Every eighth answer is a long one.
std::size_t length_of(std::size_t request) {
    return request % 8 == 7 ? most_tokens : 64 + request * 37 % 192;
}

// Memory for the longest answer from the start.
class whole_cache {
public:
    static constexpr char const* name = "whole";
    using pool = weir::device_pool;
    static auto options() { return weir::pool_options{}.limit(budget_bytes); }

    whole_cache(pool& from, cudaStream_t stream) : memory_(from, stream, most_tokens * token_bytes) {}
    void* add_token() { return static_cast<char*>(memory_.data()) + token_bytes * tokens_++; }
    std::size_t held_bytes() const { return memory_.size(); }

private:
    weir::device_buffer memory_;
    std::size_t tokens_ = 0;
};

// Pages as they are needed; the address stays, so what a step's kernels or graphs were told stays true.
class growing_cache {
public:
    static constexpr char const* name = "growing";
    using pool = weir::stable::page_pool;
    static auto options() { return weir::stable::page_pool_options{}.page_bytes(page_bytes).limit(budget_bytes); }

    growing_cache(pool& from, cudaStream_t stream) : memory_(from, stream, most_tokens * token_bytes) {
        memory_.reserve(4 * page_bytes); // a sequence begins only where there is room for some of it
    }
    void* add_token() { return memory_.append(token_bytes); }
    std::size_t held_bytes() const { return memory_.capacity(); }

private:
    weir::stable_buffer memory_;
};

template <class Cache>
void serve(cudaStream_t stream) {
    typename Cache::pool pool(Cache::options());
    struct running {
        std::size_t request;
        std::size_t tokens;
        Cache cache;
    };
    std::deque<std::size_t> waiting;
    for (std::size_t i = 0; i < requests; ++i)
        waiting.push_back(i);
    std::vector<running> all;
    std::size_t steps = 0, most_at_once = 0, evicted = 0;
    auto const evict_youngest = [&] { // its answer begins anew later
        waiting.push_front(all.back().request);
        all.pop_back();
        ++evicted;
    };
    for (; !waiting.empty() || !all.empty(); ++steps) {
        try {
            while (!waiting.empty()) {
                all.push_back({waiting.front(), 0, Cache(pool, stream)});
                waiting.pop_front();
            }
        } catch (weir::out_of_memory const&) { // no room for another one now
        }
        most_at_once = all.size() > most_at_once ? all.size() : most_at_once;
        for (std::size_t i = 0; i < all.size(); ++i) {
            void* token = nullptr;
            while (!token)
                try {
                    token = all[i].cache.add_token();
                } catch (weir::out_of_memory const&) {
                    evict_youngest();
                    if (i == all.size())
                        break; // it was the youngest itself
                }
            if (!token)
                continue;
            ++all[i].tokens;
            weir::check_cuda(cudaMemsetAsync(token, 1, token_bytes, stream), "cudaMemsetAsync"); // the step's kernels
        }
        if (steps % 256 == 64) {
            std::size_t used = 0, held = 0;
            for (running const& each : all)
                used += each.tokens * token_bytes, held += each.cache.held_bytes();
            std::string const picture = std::string(used / page_bytes, '#') + std::string((held - used) / page_bytes, '.');
            std::printf("%-8s step %5zu  %2zu sequences  %s\n", Cache::name, steps, all.size(), picture.c_str());
        }
        for (std::size_t i = all.size(); i-- > 0;)
            if (all[i].tokens == length_of(all[i].request)) // answered: its pages go to others once this step is over
                all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
    }
    std::printf("%-8s %zu answers in %zu steps, at most %zu at once, %zu evicted\n", Cache::name, requests, steps, most_at_once,
                evicted);
}

int main() try {
    cudaStream_t stream = nullptr;
    weir::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
    serve<whole_cache>(stream);
    serve<growing_cache>(stream);
    weir::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
} catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
