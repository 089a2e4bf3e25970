// What stands in for arrow_cpp.cc in a build without Arrow C++.
#include "columnar/source.h"
#include "tessera/sdk/error.h"

namespace tessera_readers {

void require_arrow_cpp() {
  tessera::sdk::fail(TSR_UNIMPLEMENTED,
                     "this build has no Arrow C++: install pyarrow (pip install pyarrow), and configure with "
                     "-DTESSERA_ARROW_PYTHON=PYTHON, the Python that has it");
}

std::unique_ptr<ArrowSource> open_parquet(const std::string&) {
  require_arrow_cpp();
  return nullptr;
}

std::unique_ptr<ArrowSource> open_ipc(const std::string&) {
  require_arrow_cpp();
  return nullptr;
}

}  // namespace tessera_readers
