// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which function does an address of the program's code belong to?
//
// The loader says which module holds the address, the module's file what the linker calls the function there
// (symbol_table.hpp), and the C++ library what that is in C++. An address that was asked for before is known.
//
// invariant: each address has a name: where the file says none, the module's name and the offset in it.
// cost:      some 10 ns for an address that was asked for before; a search through the module's file for a new one.
// not for:   addresses of modules that are unloaded while the program runs: what is loaded there next has their names.

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
    /// Whether __builtin_FUNCTION may call it so.
    bool is_called(char const* plain) const {
        text const mangled = base::number_text(std::strlen(plain)) + plain; // '4step' in '_Z4stepi'
        return *plain != '\0' && (symbol == plain || std::strstr(symbol.c_str(), mangled.c_str()));
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

    base::address_map by_address_;
    base::growing_array<function> all_;
};

} // namespace trace::detail
} // namespace v0
} // namespace weir
