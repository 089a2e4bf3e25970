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

// By Arrow C++. Failure(TSR_UNIMPLEMENTED) from all three: this was built without it.
void require_arrow_cpp();
std::unique_ptr<ArrowSource> open_parquet(const std::string& path);
std::unique_ptr<ArrowSource> open_ipc(const std::string& path);

}  // namespace tessera_readers
