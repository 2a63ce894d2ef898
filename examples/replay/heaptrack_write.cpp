// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "program.hpp"
#include <array>
#include <cstdio>
#include <unordered_map>
#include <utility>
#include <vector>

// heaptrack's text, version 3 of its format: lines that begin with a letter, with numbers in hexadecimal. Numbers of texts, places,
// stacks and kinds of allocation count from 1 (kinds from 0), in the order of their lines.

namespace replay {
namespace {

using weir::trace::event;
using weir::trace::event_kind;

class heaptrack_writer {
public:
    explicit heaptrack_writer(program const& of) : of_(of) {}

    std::string written() {
        out_ = "v 10400 3\nX recorded by weir\nI 1000 " + hex(0x100000) + '\n';
        module_ = text("device memory");
        std::unordered_map<std::uint64_t, std::size_t> live; // by address: which kind of allocation
        auto const end = [&](auto const& at) {
            out_ += "- " + hex(at->second) + '\n';
            live.erase(at);
        };
        for (event const& each : of_.what.events) {
            bool const is_allocation = each.kind == event_kind::allocate;
            if (!is_allocation && each.kind != event_kind::free)
                continue;
            if (std::uint64_t const ms = of_.what.ns_of(each) / 1'000'000; ms != ms_) {
                out_ += "c " + hex(ms) + '\n';
                ms_ = ms;
            }
            if (auto const found = live.find(each.address); found != live.end())
                end(found);
            if (is_allocation) {
                std::size_t const kind = kind_of(each.bytes, stack(each.site));
                out_ += "+ " + hex(kind) + '\n';
                live[each.address] = kind;
            }
        }
        return out_ + "c " + hex(ms_ + 1) + '\n';
    }

private:
    static std::string hex(std::uint64_t number) {
        std::array<char, 24> buffer;
        std::snprintf(buffer.data(), buffer.size(), "%llx", static_cast<unsigned long long>(number));
        return buffer.data();
    }

    std::size_t text(std::string all) {
        for (char& each : all)
            each = each == '\n' || each == '\r' ? ' ' : each;
        if (all.empty())
            return 0;
        auto const [found, is_new] = texts_.try_emplace(all, texts_.size() + 1);
        if (is_new)
            out_ += "s " + hex(all.size()) + ' ' + all + '\n';
        return found->second;
    }
    // The number of a frame's stack; that of a place nobody knows is a place of its own.
    std::size_t stack(std::uint32_t frame) {
        if (stacks_.empty())
            stacks_.resize(of_.what.frames.size() + 1);
        std::vector<std::uint32_t> chain; // what has no number yet, the innermost first
        for (std::uint32_t at = frame;; at = of_.what.frames[at - 1].caller) {
            if (stacks_[at] != 0 || (at == 0 && frame != 0))
                break;
            chain.push_back(at);
            if (at == 0)
                break;
        }
        while (!chain.empty()) {
            std::uint32_t const at = chain.back();
            chain.pop_back();
            std::string function = "(not known)", file;
            std::uint32_t line = 0, caller = 0;
            if (at != 0) {
                weir::trace::frame const& known = of_.what.frames[at - 1];
                function = known.function.empty() ? "(no name)" : known.function.c_str();
                file = known.file.c_str();
                line = known.line;
                caller = known.caller;
            }
            std::size_t const called_by = caller != 0 ? stacks_[caller] : 0;
            std::size_t const function_text = text(function), file_text = text(file);
            ++count_;
            out_ += "i " + hex(0x1000 + count_) + ' ' + hex(module_) + ' ' + hex(function_text);
            if (file_text != 0)
                out_ += ' ' + hex(file_text) + ' ' + hex(line);
            out_ += "\nt " + hex(count_) + ' ' + hex(called_by) + '\n';
            stacks_[at] = count_;
        }
        return stacks_[frame];
    }
    std::size_t kind_of(std::uint64_t bytes, std::size_t stack) {
        auto const [found, is_new] = kinds_[stack].try_emplace(bytes, kind_count_);
        if (is_new) {
            out_ += "a " + hex(bytes) + ' ' + hex(stack) + '\n';
            ++kind_count_;
        }
        return found->second;
    }

    program const& of_;
    std::string out_;
    std::size_t module_ = 0, count_ = 0, kind_count_ = 0;
    std::uint64_t ms_ = 0;
    std::unordered_map<std::string, std::size_t> texts_;
    std::vector<std::size_t> stacks_; // by the number of the frame
    std::unordered_map<std::size_t, std::unordered_map<std::uint64_t, std::size_t>> kinds_;
};

} // namespace

std::string as_heaptrack(program const& of) {
    return heaptrack_writer(of).written();
}

} // namespace replay
