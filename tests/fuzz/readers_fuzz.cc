// Every reader of data on invalid bytes: it gives a sentence, or consistent samples. The first byte selects the reader;
// lines "---" separate the files of one input.
#include <filesystem>
#include <iterator>

#include "config/test_directory.h"
#include "data/examples.h"
#include "data/sample_stream.h"
#include "fuzz.h"
#include "tessera/data.h"
#include "tessera/runtime.h"

namespace tessera::fuzz {
namespace {

// A data set's files, and the way to read them.
struct ReaderKind {
  const char* reader;
  std::vector<const char*> files;
  bool knows_columns = false;
};

const std::vector<ReaderKind>& kinds() {
  static const std::vector<ReaderKind> kAll = {
      {"prepared", {"meta.json", "train.tsv", "test.tsv"}, true},
      {"movielens-100k", {"ml-100k.inter", "ml-100k.item", "ml-100k.user"}, true},
      {"criteo-tsv", {"day.tsv"}, true},
      {"csv", {"clicks.csv"}},
      {"tsv", {"clicks.tsv"}},
      {"csv", {"clicks.csv.gz"}}};
  return kAll;
}

// Writes the files of one set and removes those of others.
void write(const test::TestDirectory& directory, const ReaderKind& kind, std::string_view bytes) {
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) std::filesystem::remove(entry.path());
  constexpr std::string_view kMark = "\n---\n";
  for (size_t i = 0; i < kind.files.size(); ++i) {
    const size_t end = i + 1 < kind.files.size() ? bytes.find(kMark) : std::string_view::npos;
    directory.write(kind.files[i], std::string(bytes.substr(0, end)));
    bytes = end == std::string_view::npos ? std::string_view() : bytes.substr(end + kMark.size());
  }
}

ColumnConfig column(const char* name, const char* as, const char* ids = "row", int64_t rows = 0) {
  return {.name = {name}, .as = as, .ids = ids, .rows = rows};
}

Config config_of(const ReaderKind& kind, const std::string& path) {
  Config config;
  config.data.reader = kind.reader;
  config.data.path = path;
  if (kind.files.size() == 1) config.data.path += std::string("/") + kind.files[0];
  if (kind.knows_columns) return config;
  config.data.buffer_mib = 1;
  config.columns = {column("clicked", "label"), column("age", "dense"), column("film", "ids", "vocabulary"),
                    column("user", "ids", "hash", 100), column("tags", "ids", "row", 50)};
  config.columns.back().separator = "|";
  return config;
}

void look_at(const Samples& samples, const Dataset& set) {
  if (!samples) return;
  const ExamplesPtr some = samples.some();
  require(some->size() <= samples.size(), "some samples are not more than all");
  require(some->num_columns() == std::ssize(set.columns), "samples have the set's columns");
  for (int64_t i = 0; i < some->size(); ++i) {
    require(some->num_ids(i) >= 0, "a sample has ids or none");
    for (int64_t d = 0; d < some->num_dense(); ++d)
      require(some->dense(i)[d] == some->dense(i)[d], "values are numbers");
  }
  BatchReader reader(samples, {.batch = 4, .seed = 1, .shuffle = true});
  reader.start_epoch(0);
  int64_t read = 0;
  for (Batch batch; reader.next(batch);) read += batch.sparse.stride();
  require(read == samples.size(), "an epoch has all samples");
}

}  // namespace

void fuzz_readers(Input input) {
  static const Runtime runtime({.plugin_path = {TESSERA_PLUGINS_BUILT}, .default_path = false});
  static const test::TestDirectory directory;
  if (input.empty()) return;
  const ReaderKind& kind = kinds()[input[0] % kinds().size()];
  write(directory, kind, text_of(input.subspan(1)));
  taken([&] {
    const Dataset set = read_dataset(runtime, config_of(kind, directory.path()));
    taken([&] { set.require_known_ids(); });
    taken([&] {
      look_at(set.train, set);
      look_at(set.test, set);
    });
  });
}

}  // namespace tessera::fuzz
