// Rows that arrive without end, by a reader plugin that has tessera.reader.arriving (abi/draft/arriving.h): one rank
// reads them in their order, and a position, kept in checkpoints, says where to go on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/columns.h"
#include "data/examples.h"
#include "tessera/abi/draft/arriving.h"
#include "tessera/data.h"
#include "tessera/runtime.h"

namespace tessera::data {

class ArrivingRows {
 public:
  // Whether data.reader names such a part; TSR_READER_PIPE: one that reads a pipe's rows as they come.
  static bool reads(const Runtime& runtime, const std::string& reader, const char* draft = TSR_READER_ARRIVING);
  // What reads files as data.reader reads what arrives: the part that it works around. kInvalidArgument: there is none.
  static std::string file_reader(const Runtime& runtime, const std::string& reader);

  // Reads nothing yet. `encoding`: as of read_dataset(). kInvalidArgument: keys of [data] that have no effect on such
  // rows; a column that learns from all training rows, of which there is no end.
  // Rows of a pipe may be without labels.
  ArrivingRows(const Runtime& runtime, const Config& config, const std::string& encoding,
               const char* draft = TSR_READER_ARRIVING);

  Dataset dataset() const;  // names and columns, no samples; of a pipe behind follow()
  Examples form() const;    // no samples
  // From now on an id that is no row of its column is an error, with place, row and column.
  void require_known_ids() { known_ids_ = true; }

  // Opens what there is, behind a position() of an earlier run; empty: at the beginning. Once.
  void follow(const std::string& position);
  struct Taken {
    int64_t rows = 0;
    bool last = false;  // none will come behind them
  };
  // At most `most` rows into `out`, and their event times into `times`, NaN where there is none; waits at most about
  // `wait_s` for the first. kInvalidArgument, kNotFound: rows that are not what the columns say, unless the part has
  // tessera.reader.skips and leaves them out.
  Taken take(int64_t most, double wait_s, Examples& out, std::vector<double>& times);
  std::string position() const;  // behind all that was taken, as JSON

 private:
  const tsr_reader& reader() const { return part_->api<tsr_reader>(); }
  void add(const tsr_reader_arrived& got, int64_t first, int64_t rows, Examples& out, std::vector<double>& times);

  ComponentPtr part_;
  const tsr_reader_arriving* api_;
  const tsr_reader_skips* skips_;  // null: every row has to be what it should be
  bool pipe_;
  std::string path_;
  Columns columns_;
  bool known_ids_ = false;
  std::vector<tsr_reader_values> values_;
};

// Samples on their way to another rank, which has the same columns.
std::string pack(const Examples& examples);
// Behind those that `out` has. kInternal: not of pack().
void unpack(std::string_view bytes, Examples& out);

}  // namespace tessera::data
