// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "advice.hpp"

#include "fits.hpp"
#include "own_parts.hpp"
#include "text.hpp"
#include "tried_pool.hpp"
#include <algorithm>
#include <optional>
#include <utility>

namespace replay {
namespace {

constexpr std::size_t most_sizes = 3, most_frames = 3, most_parts = 3;
constexpr std::uint64_t halvings = 7;

replayed figures_of(result const& from) {
    return {from.peak.reserved_bytes, from.mean_reserved_bytes, from.driver_calls, from.waiting_calls, from.stream_waits};
}

bool is_worth_it(std::uint64_t saved_bytes, std::uint64_t before_bytes) {
    constexpr std::uint64_t least_bytes = 1 << 20, part = 50;
    return saved_bytes >= least_bytes && saved_bytes >= before_bytes / part;
}

std::uint64_t less(std::uint64_t then, std::uint64_t now) {
    return now > then ? now - then : 0;
}

std::string listed(std::vector<std::string> const& sites) {
    constexpr std::size_t enough = 4;
    std::string out;
    for (std::size_t i = 0; i < std::min(enough, sites.size()); ++i)
        out += (i == 0 ? "" : "; ") + sites[i];
    return out + (sites.size() > enough ? "; and " + with_commas(sites.size() - enough) + " more" : "");
}

class search {
public:
    search(contender const& pool, trace const& what, std::size_t limit_bytes, advice_progress const& progress)
        : pool_(pool), what_(what), limit_bytes_(limit_bytes), progress_(progress) {}

    advices made() {
        out_.pool = pool_.name;
        result const now = replay(pool_, "as it is", limit_bytes_);
        out_.now = figures_of(now);
        if (now.failures != 0) {
            out_.untried.push_back("Nothing was tried: " + std::string(pool_.name) + " refuses " + count_text(now.failures, "allocation") +
                                   "; see what serves the program ('sh examples/run.sh replay --fits'), and give a higher limit");
            return std::move(out_);
        }
        try_recipes();
        try_limits(now);
        try_sizes();
        try_frames();
        try_part_ends(now);
        try_wait_first();
        std::stable_sort(out_.worth_it.begin(), out_.worth_it.end(),
                         [](advice const& a, advice const& b) { return a.saved_bytes > b.saved_bytes; });
        progress_("", 1);
        return std::move(out_);
    }

private:
    result replay(contender const& pool, std::string const& change, std::size_t limit_bytes) {
        run_options options;
        options.timed = false;
        options.limit_bytes = limit_bytes;
        double const done = out_.replays++;
        return run(pool, what_, options, [&](double part) { progress_(change, std::min(1.0, (done + part) / most_replays)); });
    }

    /// What was saved; none: it refused something, or more is held than the program allows.
    std::optional<advice> judged(advice_kind kind, std::string what, result const& then) const {
        advice out{kind, std::move(what), figures_of(then), 0, false};
        if (then.failures != 0 || out.then.peak_bytes > limit_bytes_)
            return {};
        out.saved_bytes = less(out.then.peak_bytes, out_.now.peak_bytes);
        std::uint64_t const on_average = less(out.then.mean_bytes, out_.now.mean_bytes);
        // It is about what is held between the parts; what it holds in them may be less, too.
        if (kind == advice_kind::part_end && on_average > out.saved_bytes) {
            out.saved_bytes = on_average;
            out.is_of_mean = true;
        }
        return out;
    }
    void keep(std::optional<advice> found) {
        if (found && is_worth_it(found->saved_bytes, out_.before(*found)))
            out_.worth_it.push_back(std::move(*found));
    }

    void try_recipes() {
        for (contender const& each : contenders()) {
            if (!each.is_recipe || each.name == pool_.name)
                continue;
            std::string const name = "weir::" + std::string(each.name);
            out_.tried.push_back(name);
            keep(judged(advice_kind::recipe, name, replay(each, name, limit_bytes_)));
        }
    }

    void try_limits(result const& now) {
        out_.tried.push_back("limits");
        page_range const range = limits_for(what_, now);
        std::uint64_t const width = std::max<std::uint64_t>(1, ((range.enough - range.too_few) >> halvings) + 1);
        std::optional<advice> as_fast, least;
        auto const look = [&](std::uint64_t pages) {
            auto const bytes = static_cast<std::size_t>(pages * ledger::page_bytes);
            std::string const name = "weir::pool_options{}.limit(" + with_commas(bytes >> 20) + " MiB)";
            std::optional<advice> found = judged(advice_kind::limit, name, replay(pool_, "a limit", bytes));
            if (found)
                found->bytes = bytes;
            return found;
        };
        auto const is_as_fast = [&](replayed const& then) {
            return then.driver_calls <= out_.now.driver_calls && then.waiting_calls <= out_.now.waiting_calls &&
                   then.stream_waits <= out_.now.stream_waits;
        };
        std::vector<std::uint64_t> too_few{range.too_few}; // what refused an allocation
        auto const is_lower = [](std::optional<advice> const& a, std::optional<advice> const& b) { return a && (!b || a->bytes < b->bytes); };
        least_pages(range, width, [&](std::uint64_t pages) {
            std::optional<advice> found = look(pages);
            if (!found)
                too_few.push_back(pages);
            else if (is_lower(found, least))
                least = found;
            bool const does = found && is_as_fast(found->then);
            if (does)
                as_fast = found;
            return does;
        }, [](double) {});
        if (as_fast)
            as_fast->what += ", as fast";
        std::uint64_t const serves = least ? least->bytes / ledger::page_bytes : range.enough;
        std::uint64_t below = range.too_few;
        for (std::uint64_t const each : too_few)
            below = each < serves ? std::max(below, each) : below; // more may serve less
        least_pages({below, serves}, width, [&](std::uint64_t pages) {
            std::optional<advice> found = look(pages);
            if (found)
                least = found;
            return found.has_value();
        }, [](double) {});
        // The least has a price; it is told where that buys something.
        if (least && (!as_fast || is_worth_it(as_fast->then.peak_bytes - std::min(as_fast->then.peak_bytes, least->then.peak_bytes),
                                              as_fast->then.peak_bytes))) {
            least->what += ", the least that serves";
            keep(std::move(least));
        }
        keep(std::move(as_fast));
    }

    result replay_steered(plan const& how, std::string const& change) {
        return replay(steered(pool_, what_, how), change, limit_bytes_);
    }

    void try_sizes() {
        std::vector<one_size> const sizes = sizes_in(what_, most_sizes);
        if (sizes.empty())
            out_.untried.push_back("A slab was not tried: no size below 1 MiB makes up a twentieth of the peak");
        for (one_size const& each : sizes) {
            plan how;
            how.apart = each.blocks;
            how.slab_bytes = each.slab_bytes;
            std::string const name = "weir::placement::slab<" + std::to_string(each.slab_bytes) + ">";
            out_.tried.push_back(name);
            auto found = judged(advice_kind::slab, "a pool over " + name + " for blocks of " + with_commas(each.more_than_bytes + 1) + " to " +
                                                       with_commas(each.slab_bytes) + " bytes", replay_steered(how, name));
            if (found)
                found->bytes = each.slab_bytes;
            keep(std::move(found));
        }
    }

    void try_frames() {
        if (!names_sites(what_)) {
            out_.untried.push_back("weir::frame_pool was not tried: no call site is known; record the program with layer::record as the "
                                   "outermost layer, or with weir_torch.record");
            return;
        }
        std::vector<frame_sites> const all = frames_in(what_, most_frames);
        if (all.empty())
            out_.untried.push_back("weir::frame_pool was not tried: there is no call site whose blocks all end in a named part of the "
                                   "program, or in the opposite order of their beginnings, on one stream and thread");
        for (frame_sites const& each : all) {
            plan how;
            how.apart = each.blocks;
            how.borders = each.borders;
            std::string const where = each.part.empty() ? "" : ", with a weir::scope in '" + each.part + "'";
            out_.tried.push_back("weir::frame_pool" + where);
            keep(judged(advice_kind::frames, "weir::frame_pool" + where + ", for " + listed(each.sites), replay_steered(how, "frame_pool")));
        }
    }

    void try_part_ends(result const& now) {
        std::vector<part_ends> const all = ends_in(what_, now.reserved_bytes, most_parts);
        if (all.empty())
            out_.untried.push_back("'settle' and 'trim' were not tried: no part of the program has a name; put a weir::trace::named_scope, or "
                                   "weir_torch.scope, around a step, and record it again");
        for (part_ends const& each : all) {
            std::optional<advice> best;
            struct {
                bool settles, trims;
                char const* name;
            } const calls[] = {{false, true, "trim()"}, {true, false, "settle()"}, {true, true, "settle() and trim()"}};
            for (auto const& call : calls) {
                plan how;
                how.borders = each.borders;
                how.settles = call.settles;
                how.trims = call.trims;
                std::string const name = std::string(call.name) + " where '" + each.part + "' ends";
                out_.tried.push_back(name);
                std::optional<advice> found = judged(advice_kind::part_end, name, replay_steered(how, name));
                // Two calls have to do more than one.
                if (found && (!best || is_worth_it(less(best->saved_bytes, found->saved_bytes), out_.before(*found))))
                    best = std::move(found);
            }
            keep(std::move(best));
        }
    }

    void try_wait_first() {
        if (what_.streams < 2) {
            out_.untried.push_back("weir::handover::wait_first was not tried: the program has one stream");
            return;
        }
        if (pool_.name != "device_pool")
            return; // it is a choice of that one
        out_.tried.push_back("weir::handover::wait_first");
        keep(judged(advice_kind::wait_first, "weir::handover::wait_first in device_pool's parts",
                    replay(wait_first_pool(), "wait_first", limit_bytes_)));
    }

    contender const& pool_;
    trace const& what_;
    std::size_t const limit_bytes_;
    advice_progress const& progress_;
    advices out_;
};

} // namespace

advices advise(contender const& pool, trace const& what, std::size_t limit_bytes, advice_progress const& progress) {
    return search(pool, what, limit_bytes, progress).made();
}

} // namespace replay
