// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a spill_set's policy needs 'bool operator()(spill_candidate const& a, spill_candidate const& b) const'
#include <weir/staging/spill.hpp>

struct largest_first {
#ifdef REJECT
    bool operator()(weir::staging::spill_candidate const& a) const { return a.bytes != 0; } // compares with nobody
#else
    bool operator()(weir::staging::spill_candidate const& a, weir::staging::spill_candidate const& b) const {
        return a.bytes > b.bytes;
    }
#endif
};

void use(weir::staging::spill_set<largest_first>& set) {
    static_cast<void>(set.spill());
}
