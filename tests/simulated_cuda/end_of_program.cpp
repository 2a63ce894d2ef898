// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What does a program say that never asked for reports? Each program here is a child process.

#include "simulated_cuda/simulated_cuda.hpp"

#include <cstdlib>
#include <doctest/doctest.h>
#include <string>
#include <support/standard_error.hpp>
#include <sys/wait.h>
#include <unistd.h>

namespace {

namespace sim = simulated_cuda;

void mistake() {
    char* p = nullptr;
    static_cast<void>(cudaMalloc(reinterpret_cast<void**>(&p), 256));
    static_cast<void>(sim::launch(nullptr, {}, {{p + 128, 256}})); // beyond its end
}

struct ending {
    int status = -1;
    std::string said;
};

ending ending_of(void (*program)()) {
    ending end;
    end.said = support::standard_error_of([&] {
        pid_t const child = fork();
        if (child == 0) {
            sim::reset();
            program();
            std::exit(0);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        end.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    });
    return end;
}

} // namespace

TEST_CASE("end of the program: reports are printed with a count and end it with an error, until they are dealt with") {
    struct {
        char const* name;
        void (*program)();
        std::size_t reports;
        int status;
    } const programs[] = {
        {"no mistake", [] { sim::drain(); }, 0, 0},
        {"nobody asked", mistake, 1, 1},
        {"reading deals with nothing", [] { mistake(); CHECK(sim::reports().size() == 1); }, 1, 1},
        {"in worlds that are gone", [] { mistake(); sim::reset(); mistake(); sim::reset(); }, 2, 1},
        {"cleared", [] { mistake(); sim::clear_reports(); }, 0, 0},
        {"one world cleared", [] { mistake(); sim::reset(); mistake(); sim::clear_reports(); }, 1, 1},
        {"handed over", [] { sim::world world; mistake(); static_cast<void>(world.finish()); }, 0, 0},
        {"handed to a handler", [] { sim::world const world({}, [](auto const&) {}); mistake(); }, 0, 0},
        {"forgiven", [] { sim::world world; world.forgive(); mistake(); }, 0, 0},
        {"after a world that was forgiven", [] { { sim::world world; world.forgive(); mistake(); } mistake(); }, 1, 1},
        {"no error wanted", [] { sim::fail_at_exit(false); mistake(); }, 1, 0},
    };
    for (auto const& each : programs) {
        CAPTURE(std::string(each.name));
        ending const end = ending_of(each.program);
        CHECK(end.status == each.status);
        std::size_t found = 0;
        for (std::size_t at = 0; (at = end.said.find("writes 256 bytes", at)) != std::string::npos; ++at)
            ++found;
        CHECK(found == each.reports);
        std::string const count = "simulated device: " + std::to_string(each.reports) + (each.reports == 1 ? " report" : " reports") +
                                  (each.status != 0 ? "; this program ends with an error\n" : "\n");
        CHECK((end.said.size() >= count.size() && end.said.substr(end.said.size() - count.size()) == count) == (each.reports != 0));
        CHECK(end.said.empty() == (each.reports == 0));
    }
}
