// Linked, in builds with TESSERA_COVERAGE, into everything whose lines are counted: a process writes its counts also
// when it ends by quick_exit(), as forked ranks do.
#include <cstdlib>

extern "C" void __gcov_dump();  // of the library or program that this is linked into

namespace {
[[maybe_unused]] const int g_registered = std::at_quick_exit(&__gcov_dump);
}
