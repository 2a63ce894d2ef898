// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "pickle.hpp"

#include "trace.hpp"
#include <cstring>
#include <unordered_map>
#include <vector>

namespace replay {
namespace {

/// The machine that runs a pickle.
class machine {
public:
    machine(std::string_view bytes, std::string const& path, document& to) : rest_(bytes), path_(path), to_(to) {}

    void run() {
        while (step(static_cast<unsigned char>(taken(1).front()))) {
        }
        to_.root = popped();
    }

private:
    [[noreturn]] void refuse(std::string const& what) const {
        throw bad_input(path_ + ": " + what + "; write it again, or give the JSON of the same snapshot");
    }
    std::string_view taken(std::size_t count) {
        if (count > rest_.size())
            refuse("the pickle ends too early, so the file was cut");
        std::string_view const out = rest_.substr(0, count);
        rest_.remove_prefix(count);
        return out;
    }
    std::uint64_t number(std::size_t bytes) {
        std::uint64_t out = 0;
        std::string_view const from = taken(bytes);
        for (std::size_t i = 0; i < bytes && i < 8; ++i)
            out |= std::uint64_t{static_cast<unsigned char>(from[i])} << 8 * i;
        if (bytes > 0 && bytes < 8 && (from.back() & 0x80) != 0)
            sign_ = ~std::uint64_t{0} << 8 * bytes;
        else
            sign_ = 0;
        return out;
    }
    std::size_t size(std::size_t bytes) { return static_cast<std::size_t>(number(bytes)); }
    value signed_number(std::size_t bytes) {
        std::uint64_t const low = number(bytes);
        return value::of(static_cast<std::int64_t>(low | sign_));
    }
    std::string line() {
        std::size_t const end = rest_.find('\n');
        std::string out(taken(end == std::string_view::npos ? rest_.size() + 1 : end));
        taken(1);
        return out;
    }

    void push(value const& one) { stack_.push_back(one); }
    value popped() {
        if (stack_.size() <= (marks_.empty() ? 0 : marks_.back()))
            refuse("the pickle takes what is not there, so the file is damaged");
        value const out = stack_.back();
        stack_.pop_back();
        return out;
    }
    value& top() {
        push(popped());
        return stack_.back();
    }
    /// What stands above the last mark.
    std::vector<value> above_mark() {
        if (marks_.empty())
            refuse("the pickle has no mark where it needs one, so the file is damaged");
        auto const begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
        std::vector<value> out(begin, stack_.end());
        stack_.erase(begin, stack_.end());
        marks_.pop_back();
        return out;
    }
    void push_list(std::vector<value> const& elements) {
        value const made = to_.list();
        made.own_list() = elements;
        push(made);
    }
    void append(std::vector<value> const& elements) {
        value const& to = top();
        if (to.is_list())
            to.own_list().insert(to.own_list().end(), elements.begin(), elements.end());
    }
    void enter(std::vector<value> const& pairs) {
        value const& to = top();
        if (!to.is_dictionary())
            return;
        for (std::size_t i = 0; i + 1 < pairs.size(); i += 2)
            to.own_dictionary().emplace_back(&(pairs[i].what() == value::type::text ? pairs[i].text() : none_), pairs[i + 1]);
    }
    void tuple(std::size_t count) {
        std::vector<value> elements(count);
        for (std::size_t i = count; i-- != 0;)
            elements[i] = popped();
        push_list(elements);
    }
    /// A call that is not made.
    void call() {
        value const arguments = popped();
        popped();
        push(arguments.elements().empty() ? value() : arguments.elements().front());
    }
    void recall(std::uint64_t at) {
        auto const found = memo_.find(at);
        if (found == memo_.end())
            refuse("the pickle refers to what is not there, so the file is damaged");
        push(found->second);
    }

    /// False at the end.
    bool step(unsigned char what) {
        switch (what) {
        case 0x80: // PROTO
            if (number(1) > 5)
                refuse("the pickle is of a later protocol than 5");
            return true;
        case 0x95: // FRAME
            taken(8);
            return true;
        case '.':
            return false;
        case '(':
            marks_.push_back(stack_.size());
            return true;
        case '0':
            popped();
            return true;
        case '1':
            above_mark();
            return true;
        case '2':
            push(value(top()));
            return true;
        case 'N':
            return push(value()), true;
        case 0x88:
        case 0x89:
            return push(value::of(what == 0x88)), true;
        case 'K':
            return push(value::of(static_cast<std::int64_t>(number(1)))), true;
        case 'M':
            return push(value::of(static_cast<std::int64_t>(number(2)))), true;
        case 'J':
            return push(signed_number(4)), true;
        case 0x8a: // LONG1
            return push(signed_number(size(1))), true;
        case 0x8b: // LONG4
            return push(signed_number(size(4))), true;
        case 'G': {
            std::uint64_t bits = 0;
            for (char const c : taken(8))
                bits = bits << 8 | static_cast<unsigned char>(c);
            double real;
            std::memcpy(&real, &bits, sizeof real);
            return push(value::of(real)), true;
        }
        case 'X':
        case 'T':
        case 'B':
            return push(to_.text(std::string(taken(size(4))))), true;
        case 0x8c:
        case 'U':
        case 'C':
            return push(to_.text(std::string(taken(size(1))))), true;
        case 0x8d:
        case 0x8e:
        case 0x96:
            return push(to_.text(std::string(taken(size(8))))), true;
        case ']':
        case ')':
        case 0x8f: // EMPTY_SET
            return push(to_.list()), true;
        case '}':
            return push(to_.dictionary()), true;
        case 'l':
        case 't':
        case 0x91: // FROZENSET
            return push_list(above_mark()), true;
        case 0x85:
        case 0x86:
        case 0x87:
            return tuple(what - 0x84u), true;
        case 'a': {
            value const one = popped();
            return append({one}), true;
        }
        case 'e':
        case 0x90: { // ADDITEMS
            std::vector<value> const all = above_mark();
            return append(all), true;
        }
        case 'd': {
            std::vector<value> const all = above_mark();
            push(to_.dictionary());
            return enter(all), true;
        }
        case 's': {
            value const content = popped();
            value const name = popped();
            return enter({name, content}), true;
        }
        case 'u': {
            std::vector<value> const all = above_mark();
            return enter(all), true;
        }
        case 'q':
            memo_[number(1)] = top();
            return true;
        case 'r':
            memo_[number(4)] = top();
            return true;
        case 0x94: { // MEMOIZE
            std::uint64_t const at = memo_.size();
            memo_[at] = top();
            return true;
        }
        case 'h':
            return recall(number(1)), true;
        case 'j':
            return recall(number(4)), true;
        case 'c': // GLOBAL
            line();
            line();
            return push(value()), true;
        case 0x93: // STACK_GLOBAL
            popped();
            popped();
            return push(value()), true;
        case 'R':
        case 0x81: // NEWOBJ
            return call(), true;
        case 'b': // BUILD
            popped();
            return true;
        default:
            refuse("the pickle holds the instruction " + std::to_string(what) +
                   ", which makes nothing that a snapshot consists of, or the file is damaged");
        }
    }

    std::string_view rest_;
    std::string const& path_;
    document& to_;
    std::string const& none_ = to_.keep({}); // the name of what bears none; values outlive this object
    std::uint64_t sign_ = 0;
    std::vector<value> stack_;
    std::vector<std::size_t> marks_;
    std::unordered_map<std::uint64_t, value> memo_;
};

class writer {
public:
    std::string written(value const& of) {
        out_ = std::string("\x80\x04", 2);
        add(of);
        return std::move(out_) + '.';
    }

private:
    void number(std::uint64_t all, std::size_t bytes) {
        for (std::size_t i = 0; i < bytes; ++i)
            out_ += static_cast<char>(all >> 8 * i);
    }
    // Texts and lists that stand in several places are written once.
    template <class Write>
    void once(void const* what, Write const& write) {
        auto const [found, is_new] = memo_.try_emplace(what, static_cast<std::uint32_t>(memo_.size()));
        if (!is_new) {
            out_ += 'j';
            return number(found->second, 4);
        }
        std::uint32_t const place = found->second;
        write();
        out_ += 'r';
        number(place, 4);
    }
    void text(std::string const& all) {
        once(&all, [&] {
            out_ += 'X';
            number(all.size(), 4);
            out_ += all;
        });
    }
    void add(value const& of) {
        switch (of.what()) {
        case value::type::nothing:
            out_ += 'N';
            return;
        case value::type::boolean:
            out_ += of.integer() != 0 ? '\x88' : '\x89';
            return;
        case value::type::integer:
            out_ += "\x8a\x09";
            number(of.number(), 8);
            out_ += of.integer() < 0 ? '\xff' : '\0';
            return;
        case value::type::real: {
            double const real = of.real();
            std::uint64_t bits;
            std::memcpy(&bits, &real, sizeof bits);
            out_ += 'G';
            for (unsigned shift = 64; shift != 0; shift -= 8)
                out_ += static_cast<char>(bits >> (shift - 8));
            return;
        }
        case value::type::text:
            return text(of.text());
        case value::type::list:
            return once(&of.elements(), [&] {
                out_ += "](";
                for (value const& each : of.elements())
                    add(each);
                out_ += 'e';
            });
        case value::type::dictionary:
            out_ += "}(";
            for (auto const& each : of.entries()) {
                text(*each.first);
                add(each.second);
            }
            out_ += 'u';
            return;
        }
    }

    std::string out_;
    std::unordered_map<void const*, std::uint32_t> memo_;
};

} // namespace

bool looks_like_pickle(std::string_view bytes) {
    return bytes.size() > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 20;
}

void read_pickle(std::string_view bytes, std::string const& path, document& to) {
    machine(bytes, path, to).run();
}

std::string as_pickle(value const& of) {
    return writer().written(of);
}

} // namespace replay
