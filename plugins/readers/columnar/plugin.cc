// The readers parquet and arrow: tessera.reader/draft-1 over files that are read by Arrow C++, if this build has it, or
// by pyarrow in a Python process.
#include "tessera/sdk/plugin.h"
#include "columnar/reader.h"
#include "tessera/sdk/draft/reader_paths.h"

namespace tessera_readers {
namespace {

using tessera::sdk::Options;

// The option `python` names a Python to read with. Without it, Arrow C++ is used, or else the python3 of PATH. Files of
// object stores are always read by a Python.
ArrowFiles source_of(const ArrowFormat& format, Options& options) {
  const std::string python = options.string("python", "");
  const double timeout_s = options.number("timeout_s", 0);
  if (timeout_s < 0) tessera::sdk::fail(TSR_INVALID_ARGUMENT, "timeout_s is ", timeout_s, ", but must be above 0");
  PythonOptions given;
  if (!python.empty()) given.python = python;
  if (timeout_s > 0) given.timeout_s = timeout_s;
  ArrowFiles out = python_files(format, given);
  ArrowOpener arrow_cpp = arrow_cpp_opener(format);
  if (!arrow_cpp || !python.empty()) return out;
  out.open = [stored = out.open, arrow_cpp, timeout_s](const std::string& path) {
    if (is_url(path)) return stored(path);
    if (timeout_s > 0)
      tessera::sdk::fail(TSR_INVALID_ARGUMENT,
                         "timeout_s has no effect on files that Arrow C++ reads: give python as well, or leave it out");
    return arrow_cpp(path);
  };
  return out;
}

class Parquet : public ColumnarReader {
 public:
  explicit Parquet(Options& options) : ColumnarReader({".parquet"}, source_of(kParquet, options)) {}
  const void* extension(std::string_view id) const { return tessera::sdk::paths_extension<Parquet>(id); }
};

class Ipc : public ColumnarReader {
 public:
  explicit Ipc(Options& options) : ColumnarReader({".arrow", ".feather"}, source_of(kIpc, options)) {}
  const void* extension(std::string_view id) const { return tessera::sdk::paths_extension<Ipc>(id); }
};

}  // namespace

TESSERA_PLUGIN("tessera-columnar-readers", "1.0.0",
               tessera::sdk::component<Parquet>(
                   {.id = "parquet", .version = "1.0.0", .about = "Parquet, by Arrow C++ or pyarrow"}),
               tessera::sdk::component<Ipc>(
                   {.id = "arrow", .version = "1.0.0", .about = "Arrow IPC files (Feather), by Arrow C++ or pyarrow"}));

}  // namespace tessera_readers
