// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How full can a pool be kept while a program replaces random blocks by others of random sizes?
//
// A program keeps blocks of log-uniform sizes live, up to a share of the pool's limit, and replaces random ones. The largest
// share at which nothing is refused is the share that the pool survives. The same sequence is played with an oracle: best fit
// over one range as long as the limit, which knows every free byte and loses none to rounding beyond 256 bytes.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>
#include <weir/base/size.hpp>
#include <weir/resource/pool_options.hpp>

namespace support {

/// Best fit over one range: the smallest free range that has room, the first of equals.
class best_fit_oracle {
public:
    explicit best_fit_oracle(std::size_t bytes) { add(0, bytes); }

    /// Where the block starts; SIZE_MAX: no free range has room.
    std::size_t take(std::size_t bytes) {
        bytes = weir::base::align_up(bytes, 256);
        auto const found = by_size_.lower_bound({bytes, 0});
        if (found == by_size_.end())
            return SIZE_MAX;
        auto const [size, offset] = *found;
        remove(offset, size);
        if (size != bytes)
            add(offset + bytes, size - bytes);
        return offset;
    }

    void give(std::size_t offset, std::size_t bytes) {
        bytes = weir::base::align_up(bytes, 256);
        auto const above = by_offset_.lower_bound(offset);
        if (above != by_offset_.end() && above->first == offset + bytes) {
            bytes += above->second;
            remove(above->first, above->second);
        }
        auto const next = by_offset_.lower_bound(offset);
        if (next != by_offset_.begin())
            if (auto const below = *std::prev(next); below.first + below.second == offset) {
                remove(below.first, below.second);
                offset = below.first;
                bytes += below.second;
            }
        add(offset, bytes);
    }

private:
    void add(std::size_t offset, std::size_t bytes) {
        by_offset_[offset] = bytes;
        by_size_.insert({bytes, offset});
    }
    void remove(std::size_t offset, std::size_t bytes) {
        by_offset_.erase(offset);
        by_size_.erase({bytes, offset});
    }

    std::map<std::size_t, std::size_t> by_offset_;
    std::set<std::pair<std::size_t, std::size_t>> by_size_;
};

/// What is replaced: sizes from `least_bytes` to `most_bytes`, on `streams` streams, within `limit_bytes`.
struct replacement {
    std::size_t limit_bytes;
    std::size_t least_bytes;
    std::size_t most_bytes;
    unsigned streams;
    unsigned turns;
};

/// Plays the sequence with at most `percent` of the limit live. `take(stream, bytes)` returns a block or false, `give(block)`
/// takes one back. The answer is the size that was refused; 0: none was.
template <class Block, class Take, class Give>
std::size_t refused_bytes(replacement const& what, unsigned percent, Take const& take, Give const& give) {
    struct live_block {
        Block block;
        std::size_t bytes;
    };
    std::mt19937 random(1);
    std::vector<live_block> live;
    std::size_t live_bytes = 0;
    std::size_t refused = 0;
    std::size_t const most = what.limit_bytes / 100 * percent;
    double const ratio = static_cast<double>(what.most_bytes) / static_cast<double>(what.least_bytes);
    for (unsigned turn = 0; turn != what.turns && refused == 0; ++turn) {
        double const drawn = std::pow(ratio, static_cast<double>(random()) / 4294967296.0);
        auto const bytes = static_cast<std::size_t>(static_cast<double>(what.least_bytes) * drawn);
        while (live_bytes + bytes > most && !live.empty()) {
            std::swap(live[random() % live.size()], live.back());
            live_bytes -= live.back().bytes;
            give(live.back().block);
            live.pop_back();
        }
        Block block{};
        if (auto const stream = static_cast<unsigned>(random() % what.streams); live_bytes + bytes <= most && !take(stream, bytes, block))
            refused = bytes;
        else if (live_bytes + bytes <= most) {
            live.push_back({block, bytes});
            live_bytes += bytes;
        }
    }
    for (live_block const& each : live)
        give(each.block);
    return refused;
}

/// The share in per cent, a multiple of `step`, up to which `survives(percent)`.
template <class Survives>
unsigned survived_percent(unsigned step, Survives const& survives) {
    unsigned percent = 100 / step * step;
    while (percent != 0 && !survives(percent))
        percent -= step;
    return percent;
}

inline unsigned oracle_percent(replacement const& what, unsigned step) {
    struct place {
        std::size_t offset;
        std::size_t bytes;
    };
    return survived_percent(step, [&](unsigned percent) {
        best_fit_oracle oracle(what.limit_bytes);
        return refused_bytes<place>(
                   what, percent,
                   [&](unsigned, std::size_t bytes, place& block) {
                       block = {oracle.take(bytes), bytes};
                       return block.offset != SIZE_MAX;
                   },
                   [&](place const& block) { oracle.give(block.offset, block.bytes); }) == 0;
    });
}

} // namespace support
