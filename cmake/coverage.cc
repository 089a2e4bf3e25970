// In builds with TESSERA_COVERAGE, of everything whose lines are counted: what a process has counted is written when it
// ends by quick_exit(), too, as forked ranks do.
#include <cstdlib>

extern "C" void __gcov_dump();  // of the library or program that this is linked into

namespace {
[[maybe_unused]] const int g_registered = std::at_quick_exit(&__gcov_dump);
}
