// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "verdict.hpp"

#include "text.hpp"
#include <algorithm>
#include <string_view>
#include <vector>

namespace replay {
namespace {

using names = std::vector<std::string>;

/// 'a', 'a and b', 'a, b and c'.
std::string listed(names const& each) {
    std::string out;
    for (std::size_t i = 0; i < each.size(); ++i)
        out += (i == 0 ? "" : i + 1 == each.size() ? " and " : ", ") + each[i];
    return out;
}

/// One pool against another: in what it is better and in what worse, as clauses.
struct difference {
    std::string pool;
    names better, worse;

    bool is_ahead() const { return worse.empty() && !better.empty(); }
    std::string said() const {
        return pool + " " + listed(better) + (better.empty() || worse.empty() ? "" : " but ") + listed(worse);
    }
};

difference between(result const& pool, result const& other, trace const& what) {
    difference out{std::string(pool.pool->name), {}, {}};
    auto const compare = [&](bool less, bool more, char const* when_less, char const* when_more, std::string const& figures) {
        if (less)
            out.better.push_back(when_less + figures);
        else if (more)
            out.worse.push_back(when_more + figures);
    };
    std::uint64_t const held = pool.peak.reserved_bytes, others_held = other.peak.reserved_bytes;
    compare(held < others_held, held > others_held, "holds less", "holds more",
            " (" + with_digits(overhead(what, pool), 3) + " \u00d7 requested against " +
                with_digits(overhead(what, other), 3) + ")");
    compare(pool.waiting_calls < other.waiting_calls, pool.waiting_calls > other.waiting_calls, "waits less often",
            "waits more often",
            " (" + with_commas(pool.waiting_calls) + " calls against " + with_commas(other.waiting_calls) + ")");
    if (pool.ns_per_operation && other.ns_per_operation) {
        double const own = *pool.ns_per_operation, others = *other.ns_per_operation;
        constexpr double alike = 1.05;
        compare(own * alike < others, own > others * alike, "is faster", "is slower",
                " (" + with_digits(own, 0) + " ns an operation against " + with_digits(others, 0) + ")");
    }
    return out;
}

/// device_pool, or the first pool of weir's; null: there is none.
result const* subject_of(std::vector<result> const& results) {
    result const* first = nullptr;
    for (result const& r : results) {
        if (r.pool->name == "device_pool")
            return &r;
        if (!first && r.pool->is_weirs)
            first = &r;
    }
    return first;
}

std::string is_or_are(names const& each, char const* rest) {
    return listed(each) + (each.size() == 1 ? " is " : " are ") + rest;
}

std::string against(result const& subject, std::vector<result const*> const& others, trace const& what) {
    std::string const name(subject.pool->name);
    std::vector<difference> ahead, mixed;
    names behind;
    for (result const* const other : others) {
        difference const found = between(*other, subject, what);
        if (found.is_ahead())
            ahead.push_back(found);
        else if (!found.better.empty())
            mixed.push_back(found);
        else
            behind.push_back(found.pool);
    }
    names clauses;
    for (difference const& each : ahead.empty() ? mixed : ahead)
        clauses.push_back(each.said());
    std::string said;
    for (std::string const& each : clauses)
        said += (said.empty() ? ": " : "; ") + each;
    if (!ahead.empty()) {
        names leaders;
        for (difference const& each : ahead)
            leaders.push_back(each.pool);
        return is_or_are(leaders, "ahead of ") + name + " here" + said;
    }
    if (!mixed.empty())
        return "No other pool is ahead of " + name + " in everything" + said +
               (behind.empty() ? "" : "; " + is_or_are(behind, "better in nothing"));
    return "No other pool is better than " + name + " in anything: it holds " + with_digits(overhead(what, subject), 3) +
           " \u00d7 what was requested, and makes " + count_text(subject.waiting_calls, "call that waits", "calls that wait") + " in " +
           count_text(subject.operations, "operation");
}

} // namespace

std::string point_of(comparison const& comparison) {
    trace const& what = *comparison.what;
    std::string out;
    auto const add = [&out](std::string const& more) { out += (out.empty() ? "" : "; ") + more; };
    auto const said = [&](result const& r) {
        std::string const times = std::string(r.pool->name) + ": " + with_digits(overhead(what, r), 2) + " \u00d7";
        if (r.failures != 0)
            return times + ", but it refused " + count_text(r.failures, "allocation");
        return times + (r.waiting_calls == 0 ? " and never waits" : ", but " + count_text(r.waiting_calls, "call that waits", "calls that wait"));
    };
    result const* const subject = subject_of(comparison.results);
    if (subject)
        add(said(*subject));
    if (what.held)
        add(what.held->who + ": " + with_digits(overhead(what, what.held->peak_bytes), 2) + " \u00d7");
    for (result const& r : comparison.results)
        if (r.pool->name == "cudaMalloc")
            add(said(r));
    return out.empty() ? out : out + ".";
}

std::string verdict(comparison const& comparison, bool is_simulated) {
    result const* const subject = subject_of(comparison.results);
    std::vector<result const*> others;
    names refused, guessed, served;
    for (result const& r : comparison.results) {
        if (&r == subject || r.pool->is_weirs)
            continue;
        if (r.failures != 0)
            refused.emplace_back(r.pool->name);
        else
            served.emplace_back(r.pool->name);
        if (r.failures == 0 && is_simulated && r.pool->is_drivers)
            guessed.emplace_back(r.pool->name);
        else if (r.failures == 0)
            others.push_back(&r);
    }
    if (!subject)
        return "No pool of weir\u2019s was asked, so none is compared.";
    std::string const name(subject->pool->name);
    if (subject->failures != 0)
        return name + " refused " + count_text(subject->failures, "allocation") + " here, " +
               (served.empty() ? "and no other pool that was asked served them all." : "and " + listed(served) + " none.");
    names left_out;
    if (!refused.empty())
        left_out.push_back(listed(refused) + " refused allocations");
    if (!guessed.empty())
        left_out.push_back("what " + listed(guessed) + " would hold on a GPU is not known");
    std::string const limits = left_out.empty() ? "" : " (not compared: " + listed(left_out) + ")";
    if (others.empty())
        return "There is no other pool to compare " + name + " with" + limits + ".";
    return against(*subject, others, *comparison.what) + limits + ".";
}

} // namespace replay
