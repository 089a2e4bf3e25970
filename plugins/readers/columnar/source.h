// Where record batches come from: one file, through Arrow's C interfaces.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "columnar/c_data.h"

namespace tessera_readers {

// Why batches cannot be read.
class BrokenStream : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

class ArrowSource {
 public:
  // What can be read by itself: a row group, a record batch.
  struct Unit {
    int64_t rows = 0;
    int64_t bytes = 0;  // about, in memory
  };

  virtual ~ArrowSource() = default;
  virtual const ArrowSchema& schema() const = 0;  // a struct of the file's columns
  virtual const std::vector<Unit>& units() const = 0;
  // The unit's rows as batches (structs) of about `rows` of them. `columns`: indices in the schema, ascending; the
  // batches' children. `out` may be read while this lives. Throws BrokenStream.
  virtual void read(int64_t unit, std::span<const int> columns, int64_t rows, ArrowArrayStream* out) = 0;
};

// Opens a file. Failure(TSR_NOT_FOUND), (TSR_INVALID_ARGUMENT), (TSR_DATA_LOSS), naming the file.
using ArrowOpener = std::function<std::unique_ptr<ArrowSource>(const std::string& path)>;

struct ArrowFormat {
  bool parquet;       // otherwise Arrow IPC
  const char* what;   // "Parquet file"
  const char* magic;  // the first bytes of a file
};
inline constexpr ArrowFormat kParquet = {true, "Parquet file", "PAR1"};
inline constexpr ArrowFormat kIpc = {false, "Arrow IPC file (a stream is none)", "ARROW1"};

// Reads by Arrow C++. Null: this was built without it.
ArrowOpener arrow_cpp_opener(const ArrowFormat& format);

// Reads by pyarrow in a Python, which all files of the opener share. It starts with the first file.
struct PythonOptions {
  std::string python = "python3";  // a path, or a name that PATH has
  double timeout_s = 120;          // how long it may say nothing
};
ArrowOpener python_opener(const ArrowFormat& format, const PythonOptions& options);

}  // namespace tessera_readers
