// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does the linker call the function at an offset of a program's or library's file?
//
// The file is in ELF. Its sections of symbols say where each function begins, how long it is, and where in a section of texts
// its name stands. The full table is read first, which 'strip' takes away, and then the one that the loader needs, which has
// what other modules call.
//
// invariant: whatever the file holds, nothing is read outside it, and a search ends with it.
// cost:      some 2 ns a symbol of the file, which is read in pieces; no memory but the name's.
// not for:   names longer than 4 KiB, which are cut.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <initializer_list>
#include <link.h>
#include <unistd.h>
#include <weir/base/text.hpp>

namespace weir {
inline namespace v0 {
namespace trace::detail {

/// One thread at a time.
class symbol_table {
public:
    /// A file that cannot be read has no symbols.
    explicit symbol_table(char const* path) noexcept : file_(::open(path, O_RDONLY | O_CLOEXEC)) {}
    symbol_table(symbol_table const&) = delete;
    symbol_table& operator=(symbol_table const&) = delete;
    ~symbol_table() {
        if (file_ >= 0)
            ::close(file_);
    }

    /// The name as the compiler mangled it; "": not known. `offset`: from where the loader put the file's first byte. Throws
    /// std::bad_alloc.
    text function_at(std::uintptr_t offset) const {
        head of;
        if (!read(0, of) || std::memcmp(of.e_ident, ELFMAG, SELFMAG) != 0 || of.e_ident[EI_CLASS] != native_class ||
            of.e_shentsize != sizeof(section))
            return text();
        for (std::uint32_t const wanted : {std::uint32_t{SHT_SYMTAB}, std::uint32_t{SHT_DYNSYM}}) {
            section each;
            for (unsigned i = 0; i < of.e_shnum && read(of.e_shoff + i * sizeof each, each); ++i)
                if (each.sh_type == wanted) {
                    text const name = name_in(each, of, offset);
                    if (!name.empty())
                        return name;
                }
        }
        return text();
    }

private:
    using head = ElfW(Ehdr);
    using section = ElfW(Shdr);
    using symbol = ElfW(Sym);
    static constexpr unsigned char native_class = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;

    std::size_t read(std::uint64_t at, void* to, std::size_t bytes) const noexcept {
        ssize_t const count = ::pread(file_, to, bytes, static_cast<off_t>(at));
        return count < 0 ? 0 : static_cast<std::size_t>(count);
    }
    template <class T>
    bool read(std::uint64_t at, T& to) const noexcept {
        return read(at, &to, sizeof to) == sizeof to;
    }

    text name_in(section const& symbols, head const& of, std::uintptr_t offset) const {
        symbol some[128];
        for (std::uint64_t at = 0; at < symbols.sh_size;) {
            std::uint64_t const left = symbols.sh_size - at;
            std::size_t const bytes = read(symbols.sh_offset + at, some, left < sizeof some ? left : sizeof some);
            for (std::size_t i = 0; i < bytes / sizeof(symbol); ++i) {
                unsigned const type = some[i].st_info & 15;
                bool const is_code = some[i].st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_GNU_IFUNC);
                if (is_code && offset - some[i].st_value < some[i].st_size)
                    return text_at(some[i].st_name, symbols, of);
            }
            if (bytes < sizeof(symbol))
                break; // the file ends here
            at += bytes / sizeof(symbol) * sizeof(symbol);
        }
        return text();
    }
    text text_at(std::uint64_t at, section const& symbols, head const& of) const {
        section texts;
        char name[4096] = "";
        if (read(of.e_shoff + std::uint64_t{symbols.sh_link} * sizeof texts, texts))
            name[read(texts.sh_offset + at, name, sizeof name - 1)] = '\0';
        return name;
    }

    int const file_;
};

} // namespace trace::detail
} // namespace v0
} // namespace weir
