// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "advice.hpp"

#include "page_parts.hpp"
#include "text.hpp"

namespace replay {
namespace {

/// 'a, b and c'.
std::string listed(std::vector<std::string> const& each) {
    std::string out;
    for (std::size_t i = 0; i < each.size(); ++i)
        out += (i == 0 ? "" : i + 1 == each.size() ? " and " : ", ") + each[i];
    return out;
}

std::string share_of(std::uint64_t part, std::uint64_t of) {
    return with_digits(of == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(of), 1) + " %";
}

/// '28.0 MiB at the peak (4.1 %)'.
std::string saving(advice const& of, advices const& all) {
    return in_bytes(of.saved_bytes) + (of.is_of_mean ? " on average (" : " at the peak (") + share_of(of.saved_bytes, all.before(of)) + ")";
}

std::string nothing_saves(advices const& all) {
    return "Nothing that was tried saves 2 % and 1 MiB: " + listed(all.tried);
}

/// '1,227 and 1,200 more', as a cell of the table.
std::string cell(char const* name, std::uint64_t then, std::uint64_t now) {
    std::string const change = then == now ? "as before" : with_commas(then > now ? then - now : now - then) + (then > now ? " more" : " fewer");
    return "<td data-name=\"" + std::string(name) + "\">" + with_commas(then) + "<span class=\"of\">" + change + "</span></td>";
}

} // namespace

std::string price_of(replayed const& then, replayed const& now) {
    struct {
        std::uint64_t then, now;
        char const *one, *several;
    } const all[] = {{then.driver_calls, now.driver_calls, "driver call", "driver calls"},
                     {then.waiting_calls, now.waiting_calls, "call that waits", "calls that wait"},
                     {then.stream_waits, now.stream_waits, "wait of a stream for another", "waits of a stream for another"}};
    std::vector<std::string> more, fewer;
    for (auto const& each : all) {
        if (each.then > each.now)
            more.push_back(count_text(each.then - each.now, std::string("more ") + each.one, std::string("more ") + each.several));
        if (each.then < each.now)
            fewer.push_back(count_text(each.now - each.then, std::string("fewer ") + each.one, std::string("fewer ") + each.several));
    }
    std::string const price = more.empty() ? "no more calls or waits" : listed(more);
    return fewer.empty() ? price : price + ", and " + listed(fewer);
}

std::string as_text(advices const& found) {
    std::string out = "  advice for " + found.pool + ", which holds " + in_bytes(found.now.peak_bytes) + " at the peak and " +
                      in_bytes(found.now.mean_bytes) + " on average; each was tried, in " + count_text(found.replays, "replay") + "\n";
    for (advice const& each : found.worth_it)
        out += "    saves " + saving(each, found) + ", for " + price_of(each.then, found.now) + ": " + printable(each.what) + '\n';
    if (found.worth_it.empty() && !found.tried.empty())
        out += "    " + printable(nothing_saves(found)) + ".\n";
    for (std::string const& each : found.untried)
        out += "    " + printable(each) + ".\n";
    return out;
}

std::string as_card(advices const& found, trace const& of) {
    std::string out = "<section class=\"card scroll advice\"><h3>Advice that was tried on " + escaped(of.name) + "</h3><p class=\"soft\">" +
                      escaped(found.pool) + " holds " + in_bytes(found.now.peak_bytes) + " at the peak and " + in_bytes(found.now.mean_bytes) +
                      " on average. Each change was replayed, in " + count_text(found.replays, "replay") +
                      " all together; the figures are those of its replay.</p>";
    if (!found.worth_it.empty())
        out += "<table><thead><tr><th scope=\"col\">change</th><th scope=\"col\">saves</th><th scope=\"col\">driver calls</th><th "
               "scope=\"col\">calls that wait</th><th scope=\"col\">streams that wait</th></tr></thead><tbody>\n";
    for (advice const& each : found.worth_it)
        out += "<tr><th scope=\"row\">" + escaped(each.what) + "</th><td data-name=\"saves\">" + in_bytes(each.saved_bytes) + "<span class=\"of\">" +
               share_of(each.saved_bytes, found.before(each)) + (each.is_of_mean ? ", on average" : ", at the peak") + "</span></td>" +
               cell("driver calls", each.then.driver_calls, found.now.driver_calls) +
               cell("calls that wait", each.then.waiting_calls, found.now.waiting_calls) +
               cell("streams that wait", each.then.stream_waits, found.now.stream_waits) + "</tr>\n";
    out += found.worth_it.empty() ? "" : "</tbody></table>";
    if (found.worth_it.empty() && !found.tried.empty())
        out += "<p>" + escaped(nothing_saves(found)) + ".</p>";
    for (std::string const& each : found.untried)
        out += "<p class=\"soft\">" + escaped(each) + ".</p>";
    return out + "</section>\n";
}

} // namespace replay
