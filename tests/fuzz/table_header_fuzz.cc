// The first page of a packed table. The first byte says whether the checksum is made right, how large the file is, and
// which table is expected.
#include <zlib.h>

#include <cstddef>
#include <vector>

#include "fuzz.h"
#include "inference/table_file.h"

namespace tessera::fuzz {

void fuzz_table_header(Input input) {
  using namespace inference;
  Taker taker(input);
  const auto how = taker.take<uint8_t>();
  EmbeddingBagConfig table{.name = "film",
                           .num_embeddings = (how & 2) != 0 ? 7 : 1682,
                           .embedding_dim = (how & 4) != 0 ? 1 : 16,
                           .row_format = (how & 8) != 0 ? RowFormat::kInt8 : RowFormat::kFloat32};
  const TableHeader expected = header_of(table);
  std::vector<uint8_t> file(taker.rest().begin(), taker.rest().end());
  if ((how & 16) != 0) file.resize(static_cast<size_t>(file_bytes(expected)));
  if ((how & 1) != 0 && file.size() >= sizeof(TableHeader)) {
    const auto crc = static_cast<uint32_t>(::crc32(0, file.data(), offsetof(TableHeader, crc)));
    std::memcpy(file.data() + offsetof(TableHeader, crc), &crc, sizeof(crc));
  }
  const bool good = taken([&] { check_header(file.data(), std::ssize(file), expected, "table-0.rows"); });
  if (good) require(std::memcmp(file.data(), &expected, sizeof(expected)) == 0, "what is taken is what was expected");
}

}  // namespace tessera::fuzz
