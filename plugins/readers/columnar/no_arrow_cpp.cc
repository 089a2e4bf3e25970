// Replaces arrow_cpp.cc in a build without Arrow C++.
#include "columnar/source.h"

namespace tessera_readers {

ArrowOpener arrow_cpp_opener(const ArrowFormat& /*format*/) { return nullptr; }

}  // namespace tessera_readers
