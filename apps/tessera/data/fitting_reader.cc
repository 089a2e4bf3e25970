#include "data/fitting_reader.h"

#include <exception>
#include <span>

#include "tessera/error.h"

namespace tessera::cli {
namespace {

// Opens the files and checks that the first block's rows have a field for each column.
std::unique_ptr<data::ReaderComponent> open_and_try(const Runtime& runtime, const std::string& reader,
                                                    const std::string& path) {
  constexpr int64_t kBlock = int64_t{256} << 10;
  auto files = std::make_unique<data::ReaderComponent>(runtime, reader, path, kBlock);
  files->select(all_texts(files->columns()));
  if (!files->blocks().empty()) files->read(0, [](std::span<const tsr_reader_values>) {});
  return files;
}

}  // namespace

std::vector<data::WantedColumn> all_texts(const std::vector<data::FileColumn>& columns) {
  std::vector<data::WantedColumn> out;
  for (const data::FileColumn& c : columns) out.push_back({c.name, TSR_READER_TEXT, c.list, c.weighted});
  return out;
}

FittingReader fitting_reader(const Runtime& runtime, const std::vector<std::string>& readers, const std::string& path) {
  FittingReader best;
  std::exception_ptr first_error;
  size_t most = 0;
  for (const std::string& reader : readers) {
    try {
      auto files = open_and_try(runtime, reader, path);
      const size_t columns = files->columns().size();
      if (columns > most) best = {reader, std::move(files)}, most = columns;
    } catch (const Error& e) {
      if (e.code() != Code::kInvalidArgument) throw;
      if (&reader == &readers.front()) first_error = std::current_exception();
    }
    if (&reader == &readers.front() && most > 1) break;
  }
  if (first_error != nullptr && most < 2) std::rethrow_exception(first_error);
  return best;
}

}  // namespace tessera::cli
