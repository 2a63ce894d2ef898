// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstring>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>
#include <weir/trace/call_stacks/symbol_table.hpp>

namespace {

/// A file of two tables of symbols, as a linker writes it.
struct elf_image {
    ElfW(Ehdr) head{};
    ElfW(Shdr) sections[4]{};
    ElfW(Sym) full[3]{}, dynamic[2]{};
    char texts[8192] = "\0first\0second\0data";

    elf_image() {
        std::memcpy(head.e_ident, ELFMAG, SELFMAG);
        head.e_ident[EI_CLASS] = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
        head.e_shentsize = sizeof sections[0];
        head.e_shoff = offsetof(elf_image, sections);
        head.e_shnum = 4;
        sections[1].sh_type = SHT_DYNSYM; // before the full one
        sections[1].sh_offset = offsetof(elf_image, dynamic);
        sections[1].sh_size = sizeof dynamic;
        sections[2].sh_type = SHT_SYMTAB;
        sections[2].sh_offset = offsetof(elf_image, full);
        sections[2].sh_size = sizeof full;
        sections[1].sh_link = sections[2].sh_link = 3;
        sections[3].sh_offset = offsetof(elf_image, texts);
        full[0] = symbol(1, 0x1000, STT_FUNC, 1);
        full[1] = symbol(14, 0x2000, STT_OBJECT, 1);
        full[2] = symbol(1, 0x3000, STT_FUNC, SHN_UNDEF); // another module's
        dynamic[0] = symbol(7, 0x4000, STT_GNU_IFUNC, 1);
        dynamic[1] = symbol(7, 0x1000, STT_FUNC, 1);
    }
    static ElfW(Sym) symbol(unsigned name, unsigned value, unsigned type, unsigned section) {
        ElfW(Sym) made{};
        made.st_name = name;
        made.st_value = value;
        made.st_size = 16;
        made.st_info = static_cast<unsigned char>(STB_GLOBAL << 4 | type);
        made.st_shndx = static_cast<std::uint16_t>(section);
        return made;
    }
    std::vector<char> bytes() const {
        char const* const first = reinterpret_cast<char const*>(this);
        return {first, first + sizeof *this};
    }
};

std::string function_at(std::vector<char> const& file, std::uintptr_t offset) {
    std::string const path = (std::filesystem::temp_directory_path() / ("weir-symbols-" + std::to_string(::getpid()))).string();
    std::ofstream(path, std::ios::binary).write(file.data(), static_cast<std::streamsize>(file.size()));
    std::string const found = weir::trace::detail::symbol_table(path.c_str()).function_at(offset);
    std::filesystem::remove(path);
    return found;
}

} // namespace

TEST_CASE("symbol_table: a function has its name from its first byte to its last, in the full table first") {
    struct {
        std::uintptr_t offset;
        char const* name;
    } const cases[] = {{0x0fff, ""}, {0x1000, "first"}, {0x100f, "first"}, {0x1010, ""}, {0x2000, ""}, {0x3000, ""}, {0x4008, "second"}};
    for (auto const& each : cases) {
        CAPTURE(each.offset);
        CHECK(function_at(elf_image().bytes(), each.offset) == each.name);
    }
}

TEST_CASE("symbol_table: what is no such file has no names") {
    CHECK(std::string(weir::trace::detail::symbol_table("/nowhere").function_at(0x1000)) == "");
    CHECK(function_at({}, 0x1000) == "");
    CHECK(function_at(std::vector<char>(1000, 'x'), 0x1000) == "");
    elf_image other;
    other.head.e_ident[EI_CLASS] = ELFCLASSNONE;
    CHECK(function_at(other.bytes(), 0x1000) == "");
    other = elf_image();
    --other.head.e_shentsize;
    CHECK(function_at(other.bytes(), 0x1000) == "");
}

TEST_CASE("symbol_table: a file that was cut off, or is damaged, says less or something else") {
    std::vector<char> const whole = elf_image().bytes();
    for (std::size_t size = 0; size < offsetof(elf_image, texts) + 10; ++size) {
        std::string const found = function_at({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}, 0x1000);
        CAPTURE(size);
        CHECK(std::string("first").rfind(found, 0) == 0);
        CHECK((found.empty() || size > offsetof(elf_image, texts)));
    }
    for (std::size_t at = 0; at < offsetof(elf_image, texts); ++at) {
        std::vector<char> damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
        CHECK(function_at(damaged, 0x1000).size() < 10);
    }
    elf_image endless;
    endless.sections[1].sh_size = endless.sections[2].sh_size = std::size_t{1} << 40;
    CHECK(function_at(endless.bytes(), 0x1000) == "first");
    CHECK(function_at(endless.bytes(), 0x9000) == "");
}

TEST_CASE("symbol_table: more symbols than are read at once, and a name that is too long") {
    elf_image one;
    std::memset(one.texts + 1, 'n', 5000);
    CHECK(function_at(one.bytes(), 0x1000) == std::string(4095, 'n'));
    std::vector<char> many = elf_image().bytes();
    one = elf_image();
    one.sections[2].sh_offset = sizeof one;
    one.sections[2].sh_size = 1000 * sizeof(ElfW(Sym));
    many = one.bytes();
    for (unsigned i = 0; i < 1000; ++i) {
        ElfW(Sym) const each = elf_image::symbol(i == 700 ? 1 : 7, 0x10000 + 16 * i, STT_FUNC, 1);
        many.insert(many.end(), reinterpret_cast<char const*>(&each), reinterpret_cast<char const*>(&each + 1));
    }
    CHECK(function_at(many, 0x10000 + 16 * 700) == "first");
    CHECK(function_at(many, 0x10000 + 16 * 701) == "second");
}
