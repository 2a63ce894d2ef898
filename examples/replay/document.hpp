// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What do JSON and Python's pickles have in common?
//
// Both hold one value: nothing, a truth, a number, a text, a list of values, or a dictionary from texts to values. A document owns
// what such a value consists of, so a value is small, may stand in several places, and what refers to itself does no harm.
//
// invariant: a value is valid as long as its document. Whatever is asked of it has an answer: what is not there is nothing, a
//            number that is none is 0, a text that is none is "".
// cost:      16 bytes a value; 24 bytes an entry of a dictionary.
// not for:   large dictionaries: their entries are looked through one by one.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace replay {

class value {
public:
    enum class type : std::uint8_t { nothing, boolean, integer, real, text, list, dictionary };
    using list = std::vector<value>;
    using dictionary = std::vector<std::pair<std::string const*, value>>;

    value() noexcept : integer_(0) {}
    static value of(bool truth) noexcept { return value(type::boolean, truth); }
    static value of(std::int64_t number) noexcept { return value(type::integer, number); }
    static value of(double number) noexcept {
        value made;
        made.type_ = type::real;
        made.real_ = number;
        return made;
    }
    explicit value(std::string const& text) noexcept : type_(type::text), text_(&text) {}
    explicit value(list& of) noexcept : type_(type::list), list_(&of) {}
    explicit value(dictionary& of) noexcept : type_(type::dictionary), dictionary_(&of) {}

    type what() const noexcept { return type_; }
    bool is_list() const noexcept { return type_ == type::list; }
    bool is_dictionary() const noexcept { return type_ == type::dictionary; }
    bool is_nothing() const noexcept { return type_ == type::nothing; }

    /// A number that is not negative, as addresses and sizes are.
    std::uint64_t number() const noexcept {
        if (type_ == type::real)
            return real_ > 0 && real_ < 1.8e19 ? static_cast<std::uint64_t>(real_) : 0;
        return type_ == type::integer || type_ == type::boolean ? static_cast<std::uint64_t>(integer_) : 0;
    }
    std::int64_t integer() const noexcept { return type_ == type::integer || type_ == type::boolean ? integer_ : 0; }
    double real() const noexcept { return type_ == type::real ? real_ : static_cast<double>(integer()); }
    std::string const& text() const noexcept {
        static std::string const none;
        return type_ == type::text ? *text_ : none;
    }
    /// The elements; none where it is no list.
    list const& elements() const noexcept {
        static list const none;
        return type_ == type::list ? *list_ : none;
    }
    dictionary const& entries() const noexcept {
        static dictionary const none;
        return type_ == type::dictionary ? *dictionary_ : none;
    }
    /// What a dictionary has under a name; nothing where it has none.
    value operator[](std::string_view name) const noexcept {
        for (auto const& each : entries())
            if (*each.first == name)
                return each.second;
        return {};
    }
    /// To add to.
    list& own_list() const noexcept { return *list_; }
    dictionary& own_dictionary() const noexcept { return *dictionary_; }

private:
    value(type what, std::int64_t number) noexcept : type_(what), integer_(number) {}

    type type_ = type::nothing;
    union {
        std::int64_t integer_;
        double real_;
        std::string const* text_;
        list* list_;
        dictionary* dictionary_;
    };
};

/// Owns the parts of its values.
class document {
public:
    document() = default;
    document(document const&) = delete;
    document& operator=(document const&) = delete;

    std::string const& keep(std::string text) { return texts_.emplace_back(std::move(text)); }
    value text(std::string text) { return value(keep(std::move(text))); }
    value list() { return value(lists_.emplace_back()); }
    value dictionary() { return value(dictionaries_.emplace_back()); }

    value root;

private:
    std::deque<std::string> texts_;
    std::deque<value::list> lists_;
    std::deque<value::dictionary> dictionaries_;
};

} // namespace replay
