// A packed table's file: a page that says what follows, then the rows at equal distances (docs/models.md).
#pragma once

#include <cstdint>
#include <string>

#include "tessera/embedding_configs.h"

namespace tessera::inference {

inline constexpr int64_t kHeaderBytes = 4096;  // rows begin on a page
inline constexpr int64_t kRowAlignment = 4;

// Where rows have ids of their own, a safetensors file beside the table's: IndexRemapping::keyed().
inline constexpr const char* kKeysTensor = "keys";
inline constexpr const char* kSeatsTensor = "seats";

// What a table file's first bytes are; the rest of the page is 0.
struct TableHeader {
  char magic[8] = {'T', 'S', 'R', 'T', 'A', 'B', 'L', 'E'};
  uint32_t version = 1;
  uint32_t header_bytes = static_cast<uint32_t>(kHeaderBytes);
  uint32_t row_format = 0;  // sdk::RowFormat
  uint32_t reserved = 0;
  int64_t rows = 0;
  int64_t dim = 0;
  int64_t stride = 0;  // bytes from row to row
  uint32_t crc = 0;    // CRC-32 of the members before
  uint32_t end = 0;
};
static_assert(sizeof(TableHeader) == 56);

// Of a table with a row_format.
TableHeader header_of(const EmbeddingBagConfig& table);
// Of a whole file.
int64_t file_bytes(const TableHeader& header);
// kDataLoss and kUnimplemented name `path`: the bytes of a file that is to hold `expected`.
void check_header(const void* bytes, int64_t file_size, const TableHeader& expected, const std::string& path);

}  // namespace tessera::inference
