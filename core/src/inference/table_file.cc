#include "inference/table_file.h"

#include <zlib.h>

#include <cstddef>
#include <cstring>

#include "tessera/error.h"

namespace tessera::inference {
namespace {

uint32_t crc_of(const TableHeader& header) {
  return static_cast<uint32_t>(
      ::crc32(0, reinterpret_cast<const unsigned char*>(&header), static_cast<uInt>(offsetof(TableHeader, crc))));
}

}  // namespace

TableHeader header_of(const EmbeddingBagConfig& table) {
  TableHeader header{.row_format = static_cast<uint32_t>(*table.row_format),
                     .rows = table.num_embeddings,
                     .dim = table.embedding_dim,
                     .stride = sdk::row_bytes(*table.row_format, table.embedding_dim, kRowAlignment)};
  header.crc = crc_of(header);
  return header;
}

int64_t file_bytes(const TableHeader& header) { return kHeaderBytes + header.rows * header.stride; }

void check_header(const void* bytes, int64_t file_size, const TableHeader& expected, const std::string& path) {
  if (file_size < kHeaderBytes) {
    fail(Code::kDataLoss, path, " is damaged: it has ", file_size, " bytes, less than the header of a table");
  }
  TableHeader found;
  std::memcpy(&found, bytes, sizeof(found));
  if (std::memcmp(found.magic, expected.magic, sizeof(found.magic)) != 0) {
    fail(Code::kDataLoss, path, " is damaged: it does not begin as a packed table does");
  }
  if (found.crc != crc_of(found)) fail(Code::kDataLoss, path, " is damaged: the checksum of its header is wrong");
  if (found.version > expected.version) {
    fail(Code::kUnimplemented, path, " is of table format ", found.version, ", but this version reads formats up to ",
         expected.version, ": use the version of Tessera that wrote it, or a later one");
  }
  if (std::memcmp(&found, &expected, sizeof(found)) != 0) {
    fail(Code::kDataLoss, path, " belongs to another model: it holds ", found.rows, " rows of ", found.dim,
         " values, but the model has ", expected.rows, " of ", expected.dim, " there, or another row format");
  }
  if (file_size != file_bytes(expected)) {
    fail(Code::kDataLoss, path, " is damaged: it has ", file_size, " bytes, but its rows need ", file_bytes(expected));
  }
}

}  // namespace tessera::inference
