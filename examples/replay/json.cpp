// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "json.hpp"

#include "text.hpp"
#include "trace.hpp"
#include <array>
#include <cstdio>
#include <map>
#include <vector>
#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>
#endif

namespace replay {
namespace {

#if __has_include(<nlohmann/json.hpp>)
/// Takes what the parser meets. No recursion, however deep the file.
class taker : public nlohmann::json_sax<nlohmann::json> {
public:
    taker(std::string const& path, document& to) : path_(path), to_(to) {}

    bool null() override { return add({}); }
    bool boolean(bool truth) override { return add(value::of(truth)); }
    bool number_integer(std::int64_t number) override { return add(value::of(number)); }
    bool number_unsigned(std::uint64_t number) override { return add(value::of(static_cast<std::int64_t>(number))); }
    bool number_float(double number, std::string const&) override { return add(value::of(number)); }
    bool string(std::string& text) override { return add(to_.text(std::move(text))); }
    bool binary(nlohmann::json::binary_t&) override { return add({}); }
    bool start_object(std::size_t) override { return begin(to_.dictionary()); }
    bool start_array(std::size_t) override { return begin(to_.list()); }
    bool end_object() override { return end(); }
    bool end_array() override { return end(); }
    bool key(std::string& name) override {
        auto const [found, is_new] = names_.try_emplace(name, nullptr);
        if (is_new)
            found->second = &to_.keep(name);
        name_ = found->second;
        return true;
    }
    bool parse_error(std::size_t at, std::string const&, nlohmann::detail::exception const&) override {
        throw bad_input(path_ + ", byte " + std::to_string(at) +
                        ": here the JSON ends too early or is none; write it again, or copy it again if it was cut");
    }

private:
    bool add(value const& one) {
        if (open_.empty())
            to_.root = one;
        else if (open_.back().is_list())
            open_.back().own_list().push_back(one);
        else
            open_.back().own_dictionary().emplace_back(name_, one);
        return true;
    }
    bool begin(value const& one) {
        add(one);
        open_.push_back(one);
        return true;
    }
    bool end() {
        open_.pop_back();
        return true;
    }

    std::string const& path_;
    document& to_;
    std::vector<value> open_;
    std::map<std::string, std::string const*> names_;
    std::string const* name_ = nullptr;
};
#endif

void add(std::string& out, value const& of) {
    switch (of.what()) {
    case value::type::nothing:
        out += "null";
        return;
    case value::type::boolean:
        out += of.integer() != 0 ? "true" : "false";
        return;
    case value::type::integer:
        out += std::to_string(of.integer());
        return;
    case value::type::real:
        out += with_digits(of.real(), 6);
        return;
    case value::type::text:
        out += json_text(of.text());
        return;
    case value::type::list: {
        char between = '[';
        for (value const& each : of.elements()) {
            out += between;
            between = ',';
            add(out, each);
        }
        out += between == '[' ? "[]" : "]";
        return;
    }
    case value::type::dictionary: {
        char between = '{';
        for (auto const& each : of.entries()) {
            out += between;
            between = ',';
            out += json_text(*each.first) + ':';
            add(out, each.second);
        }
        out += between == '{' ? "{}" : "}";
        return;
    }
    }
}

} // namespace

bool looks_like_json(std::string_view text) {
    std::size_t const first = text.find_first_not_of(" \t\r\n");
    return first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
}

#if __has_include(<nlohmann/json.hpp>)
bool reads_json() {
    return true;
}

void read_json(std::string_view text, std::string const& path, document& to) {
    taker takes(path, to);
    static_cast<void>(nlohmann::json::sax_parse(text.begin(), text.end(), &takes));
}
#else
bool reads_json() {
    return false;
}

void read_json(std::string_view, std::string const& path, document&) {
    throw bad_input(path + ": this program was built without what reads JSON (Debian: nlohmann-json3-dev); install that and build it "
                           "again, or give the pickle of the same snapshot");
}
#endif

std::string as_json(value const& of) {
    std::string out;
    add(out, of);
    return out;
}

std::string json_text(std::string_view text) {
    std::string out = "\"";
    for (std::size_t at = 0; at < text.size();) {
        std::size_t const bytes = character_bytes(text.substr(at));
        std::string_view const character = text.substr(at, bytes);
        at += bytes ? bytes : 1;
        if (bytes == 0) {
            out += '?';
        } else if (bytes == 1 && (character.front() < ' ' || character.front() == '"' || character.front() == '\\' ||
                                  character.front() == '<' || character.front() == 0x7f)) {
            std::array<char, 8> code;
            std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(character.front()));
            out += code.data();
        } else {
            out += character;
        }
    }
    return out + '"';
}

} // namespace replay
