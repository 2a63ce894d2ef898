// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Three models share a card that has room for little more than one of them: whoever is not asked sleeps.
//
// Each model has weights, which never change, and a cache, which grows while it answers. All take pages from one pool. Before a
// model answers, the others' names go to sleep. The weights are copied to the host the first time only. A cache is saved if the
// answer goes on later, and dropped if it is done. Then the model's own names wake, the weights first, at the addresses that
// they had. A row shows the card's pages during a turn: a letter is a page of that model's weights (large) or cache (small).
// On a GPU the last line says how long waking took, and the first token after it beside the others.
//
// Sources: this file. Libraries: the CUDA runtime, or the simulated device.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <exception>
#include <string>
#include <vector>
#include <weir/stable.hpp>
#include <weir/weir.hpp>

constexpr std::size_t page_bytes = 2 * weir::MiB;
constexpr std::size_t budget_bytes = 64 * weir::MiB;
constexpr std::size_t weights_bytes = 40 * weir::MiB;
constexpr std::size_t token_bytes = 512 * weir::KiB; // of a cache
constexpr std::size_t most_tokens = 40;
using weir::stable::contents;

double us_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}
double median(std::vector<double> all) {
    return std::sort(all.begin(), all.end()), all[all.size() / 2];
}

class model {
public:
    model(char letter, weir::stable::page_pool& pages, weir::stable::sleep_group& sleepers, cudaStream_t stream)
        : letter_(letter), stream_(stream), sleepers_(sleepers), weights_(pages, stream, weights_bytes / sizeof(int)),
          cache_(pages, stream, most_tokens * token_bytes), address_(weights_.data()) {
        sleepers.join(weights_name(), weights_);
        sleepers.join(cache_name(), cache_);
        weights_.append(std::vector<int>(weights_bytes / sizeof(int), letter)); // read from a file, say
    }

    void sleep() {
        if (sleepers_.suspended(weights_name()))
            return;
        sleepers_.suspend(weights_name(), contents::constant);
        sleepers_.suspend(cache_name(), cache_.empty() ? contents::drop : contents::save);
    }
    void wake() {
        sleepers_.resume(weights_name()); // the first layers could run now
        sleepers_.resume(cache_name());
        cache_.commit_ahead(token_bytes); // room for the first token
    }

    // Adds tokens to the answer; the last ones end it. Notes how many microseconds the first one took, and the others.
    void answer(std::size_t tokens, bool last, std::vector<double>& first_us, std::vector<double>& other_us) {
        for (std::size_t i = 0; i < tokens; ++i) {
            auto const begin = std::chrono::steady_clock::now();
            void* const token = cache_.append(token_bytes);
            for (std::size_t at = 0; at < weights_.size(); at += weights_.size() / 8) // a layer's kernel, which reads weights
                weir::check_cuda(cudaMemcpyAsync(token, &weights_.data()[at], token_bytes, cudaMemcpyDefault, stream_), "copy");
            weir::synchronize(stream_);
            (i == 0 ? first_us : other_us).push_back(us_since(begin));
        }
        most_cache_bytes_ = cache_.capacity();
        if (last)
            cache_.shrink(cache_.size());
    }

    // What the card has of this model.
    std::string pages() const {
        char const small = static_cast<char>(letter_ - 'A' + 'a');
        return std::string(weights_.capacity() * sizeof(int) / page_bytes, letter_) +
               std::string(most_cache_bytes_ / page_bytes, small);
    }
    bool is_well() const {
        return weights_.data() == address_ && weights_.element_sync(0) == letter_ &&
               weights_.element_sync(weights_.size() - 1) == letter_;
    }
    char letter() const { return letter_; }

private:
    weir::text weights_name() const { return std::string("weights of ") + letter_; }
    weir::text cache_name() const { return std::string("cache of ") + letter_; }

    char letter_;
    cudaStream_t stream_;
    weir::stable::sleep_group& sleepers_;
    weir::stable_vector<int> weights_;
    weir::stable_buffer cache_;
    int const* address_;
    std::size_t most_cache_bytes_ = 0;
};

void take_turns(cudaStream_t stream) {
    weir::pinned_pool keep;
    weir::stable::page_pool pages(
        weir::stable::page_pool_options{}.page_bytes(page_bytes).limit(budget_bytes).name("card"));
    weir::stable::sleep_group sleepers(keep);
    std::deque<model> models;
    for (char letter : {'A', 'B', 'C'}) {
        for (model& each : models)
            each.sleep();
        models.emplace_back(letter, pages, sleepers, stream);
    }

    struct turn {
        std::size_t model;
        std::size_t tokens;
        bool last; // of an answer
    };
    bool all_well = true;
    std::vector<double> waking, first, alone;
    std::printf("%-6s %-7s %-34s %s\n", "model", "tokens", "the card's pages", "on the host");
    for (turn const& now : {turn{0, 24, false}, turn{1, 8, true}, turn{0, 12, true}, turn{2, 40, true}, turn{1, 16, false},
                            turn{2, 4, true}, turn{1, 24, true}, turn{0, 8, true}}) {
        model& asked = models[now.model];
        for (model& each : models)
            if (&each != &asked)
                each.sleep();
        auto const begin = std::chrono::steady_clock::now();
        asked.wake();
        waking.push_back(us_since(begin));
        asked.answer(now.tokens, now.last, first, alone);
        std::string const used = asked.pages(), row = used + std::string(budget_bytes / page_bytes - used.size(), '.');
        std::printf("%-6c %-7zu %-34s %3zu MiB\n", asked.letter(), now.tokens, row.c_str(), keep.in_use_bytes() / weir::MiB);
        all_well = all_well && asked.is_well();
    }
    std::printf("all weights are %s\n", all_well ? "where and what they were" : "not what they were");
    std::printf("%s\n", pages.report().c_str());
#ifndef WEIR_SIMULATED_CUDA
    std::printf("waking takes %.0f us, the first token then %.0f us, another one %.0f us: %.2f times\n", median(waking),
                median(first), median(alone), median(first) / median(alone));
#endif
}

int main() try {
    cudaStream_t stream = nullptr;
    weir::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
    take_turns(stream);
    weir::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
} catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
