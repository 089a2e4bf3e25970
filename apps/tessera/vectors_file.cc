#include "vectors_file.h"

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>

#include "csv_field.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

void close(std::ofstream& out, const std::string& path) {
  out.close();
  if (!out) fail(Code::kUnavailable, "cannot write ", path, ": ", std::generic_category().message(errno));
}

// NumPy's format, version 1.0: numpy.lib.format. The header ends at a multiple of 64 bytes.
std::string npy_header(int64_t rows, int64_t width) {
  constexpr size_t kBefore = 10, kUnit = 64;
  std::string text = str_cat("{'descr': '<f4', 'fortran_order': False, 'shape': (", rows, ", ", width, "), }");
  text.append(kUnit - (kBefore + text.size() + 1) % kUnit, ' ');
  text += '\n';
  std::string out = "\x93NUMPY\x01";
  out += '\0';
  out += static_cast<char>(text.size() & 0xff);
  out += static_cast<char>(text.size() >> 8);
  return out + text;
}

void write_csv(std::ostream& out, const Tensor& vectors, const std::vector<std::string>& ids) {
  const int64_t rows = vectors.size(0), width = vectors.size(1);
  out << "id";
  for (int64_t d = 0; d < width; ++d) out << ',' << d;
  out << '\n';
  out.precision(9);
  for (int64_t r = 0; r < rows; ++r) {
    out << (ids.empty() ? std::to_string(r) : csv_field(ids[static_cast<size_t>(r)]));
    for (int64_t d = 0; d < width; ++d) out << ',' << vectors.data<float>()[r * width + d];
    out << '\n';
  }
}

// Fails for ids that a file of one id per line cannot hold. Many programs also end a line at a carriage return.
void check_ids(const std::string& path, const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    if (id.find_first_of("\r\n") != std::string::npos)
      fail(Code::kInvalidArgument, "an id has a line break, which ", path, " cannot hold: write the vectors as .csv");
  }
}

void write_ids(const std::string& path, const std::vector<std::string>& ids) {
  std::ofstream out(path, std::ios::binary);
  for (const std::string& id : ids) out << id << '\n';
  close(out, path);
}

void write_vectors(const std::string& path, const Tensor& vectors, const std::vector<std::string>& ids) {
  const int64_t rows = vectors.size(0);
  const auto width = static_cast<int32_t>(vectors.size(1));
  std::ofstream out(path, std::ios::binary);
  const auto* values = reinterpret_cast<const char*>(vectors.data<float>());
  const auto row_bytes = static_cast<std::streamsize>(width) * static_cast<std::streamsize>(sizeof(float));
  if (path.ends_with(".csv")) {
    write_csv(out, vectors, ids);
  } else if (path.ends_with(".npy")) {
    out << npy_header(rows, width);
    out.write(values, rows * row_bytes);
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      out.write(reinterpret_cast<const char*>(&width), sizeof(width));
      out.write(values + r * row_bytes, row_bytes);
    }
  }
  close(out, path);
}

}  // namespace

bool is_vectors_file(const std::string& path) {
  return path.ends_with(".npy") || path.ends_with(".fvecs") || path.ends_with(".csv");
}

void write_vectors_file(const std::string& path, const Tensor& vectors, const std::vector<std::string>& ids) {
  TESSERA_CHECK(ids.empty() || std::ssize(ids) == vectors.size(0), "an id for each row");
  const std::string beside = ids.empty() || path.ends_with(".csv") ? "" : path + ".ids.txt";
  if (!beside.empty()) check_ids(beside, ids);
  try {
    write_vectors(path, vectors, ids);
    if (!beside.empty()) write_ids(beside, ids);
  } catch (const Error&) {  // such as a full disk: a part of the files would look like all of them
    for (const std::string& file : {path, beside}) std::remove(file.c_str());
    throw;
  }
}

}  // namespace tessera::cli
