// The source of record batches: one file, through Arrow's C interfaces.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "columnar/c_data.h"

namespace tessera_readers {

// The reason why batches cannot be read.
class BrokenStream : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

class ArrowSource {
 public:
  // A part of a file that can be read by itself: a row group, a record batch.
  struct Unit {
    int64_t rows = 0;
    int64_t bytes = 0;  // approximate bytes in memory
  };

  virtual ~ArrowSource() = default;
  virtual const ArrowSchema& schema() const = 0;  // a struct of the file's columns
  virtual const std::vector<Unit>& units() const = 0;
  // The unit's rows as batches (structs) of about `rows` rows. `columns` are ascending indices in the schema, the
  // batches' children. `out` may be read while this object lives. Throws BrokenStream.
  virtual void read(int64_t unit, std::span<const int> columns, int64_t rows, ArrowArrayStream* out) = 0;
};

// Opens a file. Throws Failure with TSR_NOT_FOUND, TSR_INVALID_ARGUMENT or TSR_DATA_LOSS, naming the file.
using ArrowOpener = std::function<std::unique_ptr<ArrowSource>(const std::string& path)>;

// The files of an object store behind a URL, ascending: one file, or the files of a folder whose names end in one of
// `endings`. Their names are URLs without keys and options. Throws Failure.
using ArrowLister =
    std::function<std::vector<std::string>(const std::string& url, std::span<const std::string_view> endings)>;

// How files are found and opened. `open` also takes the names that `list` gave.
struct ArrowFiles {
  ArrowOpener open;
  ArrowLister list = nullptr;
};

struct ArrowFormat {
  bool parquet;       // otherwise Arrow IPC
  const char* what;   // such as "Parquet file"
  const char* magic;  // first bytes of such a file
};
inline constexpr ArrowFormat kParquet = {true, "Parquet file", "PAR1"};
inline constexpr ArrowFormat kIpc = {false, "Arrow IPC file (not a stream)", "ARROW1"};

// Reads with Arrow C++. Null if this build lacks it.
ArrowOpener arrow_cpp_opener(const ArrowFormat& format);

// Reads with pyarrow in a Python process, which all files share. It starts with the first one.
struct PythonOptions {
  std::string python = "python3";  // a path, or a name found in PATH
  double timeout_s = 120;          // how long it may be silent
};
ArrowFiles python_files(const ArrowFormat& format, const PythonOptions& options);

}  // namespace tessera_readers
