// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which line of Python runs now, and who called it?
//
// The interpreter's own functions tell; they are looked for by name in the process, so that the plug-in needs no headers of
// Python's and no build for a version of it. A thread without frames of Python's, such as PyTorch's for the backward pass, has no
// line. A line that was seen before is known by its code object, which is kept for that.
//
// order:     takes the interpreter's lock, so it is called with no other one held.
// cost:      some 150 ns a frame, of 64 at most; the wait for the interpreter's lock.

#include <cstddef>
#include <cstdint>
#include <dlfcn.h>
#include <map>
#include <tuple>
#include <weir/trace/name_table.hpp>

namespace weir_plugin {

/// The functions of the interpreter; null where the process has none.
struct python_functions {
    struct object; // PyObject, PyFrameObject and PyCodeObject

    int (*ensure)() = nullptr;
    void (*release)(int) = nullptr;
    void* (*this_thread)() = nullptr;
    object* (*frame)() = nullptr;
    object* (*back)(object*) = nullptr;
    object* (*code)(object*) = nullptr;
    int (*line)(object*) = nullptr;
    object* (*attribute)(object*, char const*) = nullptr;
    char const* (*utf8)(object*) = nullptr;
    void (*drop)(object*) = nullptr;
    void (*clear_error)() = nullptr;
    int (*is_initialized)() = nullptr;

    python_functions() noexcept {
        found_ = set(ensure, "PyGILState_Ensure") && set(release, "PyGILState_Release") &&
                 set(this_thread, "PyGILState_GetThisThreadState") && set(frame, "PyEval_GetFrame") &&
                 set(back, "PyFrame_GetBack") && set(code, "PyFrame_GetCode") && set(line, "PyFrame_GetLineNumber") &&
                 set(attribute, "PyObject_GetAttrString") && set(utf8, "PyUnicode_AsUTF8") && set(drop, "Py_DecRef") &&
                 set(clear_error, "PyErr_Clear") && set(is_initialized, "Py_IsInitialized");
    }
    /// Whether the calling thread may have frames.
    bool usable() const noexcept { return found_ && is_initialized() != 0 && this_thread() != nullptr; }

private:
    template <class Function>
    static bool set(Function& to, char const* name) noexcept {
        to = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
        return to != nullptr;
    }

    bool found_ = false;
};

/// Gives frames numbers. One thread at a time: the interpreter's lock is held.
class python_frames {
public:
    using object = python_functions::object;

    explicit python_frames(python_functions const& python) noexcept : python_(python) {}

    /// The number of the frame that runs now; 0: there is none.
    std::uint32_t number(weir::trace::name_table& names) {
        struct place {
            object* code;
            int line;
        } stack[most_frames];
        std::size_t depth = 0;
        object* borrowed = python_.frame();
        for (object* at = borrowed; at && depth != most_frames;) {
            stack[depth++] = {python_.code(at), python_.line(at)};
            object* const caller = python_.back(at);
            if (at != borrowed)
                python_.drop(at);
            at = caller;
            if (depth == most_frames && at)
                python_.drop(at);
        }
        std::uint32_t caller = 0;
        for (std::size_t i = depth; i-- > 0;)
            caller = number_of(names, caller, stack[i].code, stack[i].line);
        return caller;
    }

private:
    static constexpr std::size_t most_frames = 64;
    using key = std::tuple<object*, int, std::uint32_t>;

    // Takes over the reference to `code`.
    std::uint32_t number_of(weir::trace::name_table& names, std::uint32_t caller, object* code, int line) {
        auto const [found, is_new] = known_.try_emplace(key(code, line, caller), 0u);
        if (!is_new) {
            python_.drop(code);
            return found->second;
        }
        object* const file = python_.attribute(code, "co_filename");
        object* const function = python_.attribute(code, "co_name");
        char const* const file_text = file ? python_.utf8(file) : nullptr;
        char const* const function_text = function ? python_.utf8(function) : nullptr;
        if (!file_text || !function_text)
            python_.clear_error();
        found->second = names.number_of(caller, file_text ? file_text : "", function_text ? function_text : "",
                                        line < 0 ? 0u : static_cast<std::uint32_t>(line));
        if (file)
            python_.drop(file);
        if (function)
            python_.drop(function);
        return found->second; // the code object stays: another one at its address would take its name
    }

    python_functions const& python_;
    std::map<key, std::uint32_t> known_;
};

/// The number of the line of Python's that runs in this thread, with its callers; 0: there is none. Throws nothing.
inline std::uint32_t python_site(weir::trace::name_table& names) noexcept {
    static python_functions const python;
    if (!python.usable())
        return 0;
    int const before = python.ensure();
    static auto* const frames = new python_frames(python); // with the interpreter's lock held
    std::uint32_t found = 0;
    try {
        found = frames->number(names);
    } catch (...) { // the host has no memory for a name
    }
    python.release(before);
    return found;
}

} // namespace weir_plugin
