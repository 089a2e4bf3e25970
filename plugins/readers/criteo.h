// The reader criteo-tsv: Criteo's click logs, lines with label, 13 integers and 26 hexadecimal categories.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "samples.h"
#include "tessera/sdk/draft/reader_paths.h"

namespace tessera_readers {

// A dense value is ln(1 + max(x, 0)); an empty one is 0. Categories are texts, which the core hashes.
class Criteo : public SampleReader {
 public:
  const void* extension(std::string_view id) const { return tessera::sdk::paths_extension<Criteo>(id); }

  const char* describe(const std::string& path);
  void open(std::string_view path, int64_t block_bytes) override;

 private:
  void add_line(std::string_view line, const LinePlace& place, std::vector<SampleColumn>& columns) const override;

  std::string said_;
};

}  // namespace tessera_readers
