// A packed table's file: a header page, then the rows at equal distances (docs/models.md).
#pragma once

#include <cstdint>
#include <string>

#include "tessera/embedding_configs.h"

namespace tessera::inference {

inline constexpr int64_t kHeaderBytes = 4096;  // rows begin on a page
inline constexpr int64_t kRowAlignment = 4;

// If rows have their own ids, a safetensors file beside the table's has them: IndexRemapping::keyed().
inline constexpr const char* kKeysTensor = "keys";
inline constexpr const char* kSeatsTensor = "seats";

// The first bytes of a table file. The rest of the page is 0.
struct TableHeader {
  char magic[8] = {'T', 'S', 'R', 'T', 'A', 'B', 'L', 'E'};
  uint32_t version = 1;
  uint32_t header_bytes = static_cast<uint32_t>(kHeaderBytes);
  uint32_t row_format = 0;  // an sdk::RowFormat
  uint32_t reserved = 0;
  int64_t rows = 0;
  int64_t dim = 0;
  int64_t stride = 0;  // bytes from row to row
  uint32_t crc = 0;    // CRC-32 of the members above
  uint32_t end = 0;
};
static_assert(sizeof(TableHeader) == 56);

// The header of a table with a row_format.
TableHeader header_of(const EmbeddingBagConfig& table);
// Size of the whole file.
int64_t file_bytes(const TableHeader& header);
// Checks the bytes of a file that must hold `expected`. kDataLoss and kUnimplemented name `path`.
void check_header(const void* bytes, int64_t file_size, const TableHeader& expected, const std::string& path);

}  // namespace tessera::inference
