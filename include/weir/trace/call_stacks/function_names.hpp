// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which function does an address of the program's code belong to?
//
// The loader says which module holds the address, the module's file what the linker calls the function there
// (symbol_table.hpp), and the C++ library what that is in C++. An address that was asked for before is known, until a module is
// unloaded: another one may lie there next.
//
// invariant: each address has a name: where the file says none, the module's name and the offset in it.
// cost:      some 10 ns for an address that was asked for before; a search through the module's file for a new one.
// not for:   addresses of a module that was unloaded before they are asked for.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <link.h>
#include <utility>
#include <weir/base/address_map.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/text.hpp>
#include <weir/trace/call_stacks/symbol_table.hpp>

namespace weir {
inline namespace v0 {
namespace trace::detail {

struct function {
    text symbol; ///< as the linker calls it; "": not known
    text name;   ///< for people

    /// Whether it is of namespace weir, a member there, or local to one: '_ZN4weir', '_ZNK4weir', '_ZZN4weir'.
    bool is_weirs() const noexcept {
        if (std::strncmp(symbol.c_str(), "_Z", 2) != 0)
            return false;
        char const* const kind = symbol.c_str() + 1 + std::strspn(symbol.c_str() + 1, "Z");
        return *kind == 'N' && std::strncmp(kind + 1 + std::strspn(kind + 1, "rVKRO"), "4weir", 5) == 0;
    }
    /// Whether __builtin_FUNCTION calls it so: 'step' of 'int v1::step<int>(int) const [clone .cold]', and not 'v1'.
    bool is_called(char const* plain) const noexcept {
        std::size_t const length = std::strlen(plain);
        char const* const first = name.c_str();
        char const* const clone = std::strstr(first, " [clone");
        char const* end = clone ? clone : first + name.size();
        char const* parameters = end;
        while (parameters != first && parameters[-1] != ')')
            --parameters;
        end = parameters != first ? start_of(first, parameters) : end;
        while (length != 0 && end != first) {
            char const* const start = static_cast<std::size_t>(end - first) < length ? first : end - length;
            if (std::strncmp(start, plain, length) == 0 && (start == first || start[-1] == ':' || start[-1] == ' '))
                return true;
            if (end[-1] != '>' && end[-1] != ']') // '<int>', '[abi:cxx11]'
                return false;
            end = start_of(first, end);
        }
        return false;
    }

private:
    // Of the part in brackets that ends before `end`.
    static char const* start_of(char const* first, char const* end) noexcept {
        char const closes = end[-1], opens = closes == ')' ? '(' : closes == '>' ? '<' : '[';
        std::size_t depth = 0;
        do {
            --end;
            depth += *end == closes;
            depth -= *end == opens;
        } while (end != first && depth != 0);
        return end;
    }
};

/// A file of the process, and how far from its beginning an address lies.
struct module_place {
    std::uintptr_t address;
    char const* file = nullptr; ///< null: none; "": the program's own
    std::uintptr_t offset = 0;

    explicit module_place(std::uintptr_t of) noexcept : address(of), offset(of) { dl_iterate_phdr(&module_place::look, this); }

private:
    static int look(dl_phdr_info* module, std::size_t, void* to) noexcept {
        module_place& place = *static_cast<module_place*>(to);
        for (unsigned i = 0; i < module->dlpi_phnum; ++i) {
            ElfW(Phdr) const& part = module->dlpi_phdr[i];
            if (part.p_type != PT_LOAD || place.address - module->dlpi_addr - part.p_vaddr >= part.p_memsz)
                continue;
            place.file = module->dlpi_name;
            place.offset = place.address - module->dlpi_addr;
            return 1;
        }
        return 0;
    }
};

/// One thread at a time.
class function_names {
public:
    /// Forgets all if a module was unloaded since the last call. Whether it did.
    bool forget_unloaded() noexcept {
        unsigned long long now = 0;
        dl_iterate_phdr(&function_names::count_unloaded, &now);
        if (now == unloaded_)
            return false;
        unloaded_ = now;
        by_address_ = base::address_map();
        all_.clear();
        return true;
    }
    /// The function of an address, which is not 0; valid until the next call. Throws std::bad_alloc.
    function const& at(std::uintptr_t address) {
        std::uint32_t const known = by_address_.find(address);
        if (known != base::address_map::none)
            return all_[known];
        function fresh = function_at(address);
        all_.reserve_more(1);
        by_address_.insert(address, static_cast<std::uint32_t>(all_.size()));
        all_.push_back(std::move(fresh));
        return all_.back();
    }

private:
    static function function_at(std::uintptr_t address) {
        module_place const place(address);
        text symbol;
        if (place.file)
            symbol = symbol_table(*place.file != '\0' ? place.file : "/proc/self/exe").function_at(place.offset);
        return {symbol, symbol.empty() ? place_text(place) : demangled(symbol)};
    }

    static text place_text(module_place const& of) {
        char const* const file = of.file && *of.file != '\0' ? of.file : "program";
        char const* const slash = std::strrchr(file, '/');
        char offset[24];
        std::snprintf(offset, sizeof offset, "+0x%llx", static_cast<unsigned long long>(of.offset));
        return text(slash ? slash + 1 : file) + offset;
    }

    static text demangled(text const& symbol) {
        struct given {
            char* name;
            ~given() { std::free(name); }
        } const readable{abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, nullptr)};
        return readable.name ? text(readable.name) : symbol;
    }

    static int count_unloaded(dl_phdr_info* module, std::size_t, void* to) noexcept {
        *static_cast<unsigned long long*>(to) = module->dlpi_subs;
        return 1; // each module says it
    }

    base::address_map by_address_;
    base::growing_array<function> all_;
    unsigned long long unloaded_ = 0; // modules, so far
};

} // namespace trace::detail
} // namespace v0
} // namespace weir
