// model.json of a packed model. An input is the value of "content". Its checksum is made right, and so are the files of
// small tables, so that opening gets past both.
#include <stdlib.h>

#include "config/test_directory.h"
#include "fuzz.h"
#include "inference/manifest.h"
#include "inference/table_file.h"
#include "summed_json.h"
#include "tessera/predictor.h"

namespace tessera::fuzz {
namespace {

constexpr int64_t kMostBytes = 64 << 10;

using test::TestDirectory;

void write_tables(const TestDirectory& directory, const inference::Manifest& manifest) {
  for (const inference::Manifest::Table& t : manifest.tables) {
    if (t.file.bytes > kMostBytes || t.file.name.size() > 64 || t.file.name == inference::kManifestFile) continue;
    const inference::TableHeader header = inference::header_of(t.config);
    std::string file(static_cast<size_t>(t.file.bytes), '\0');
    std::memcpy(file.data(), &header, sizeof(header));
    directory.write(t.file.name, file);
  }
}

}  // namespace

void fuzz_model(Input input) {
  using inference::Manifest;
  static const TestDirectory directory;
  taken([&] {
    const std::string text = with_sum(R"("format": "tessera.model", "version": 1, "name": "fuzz", )", "fuzz", input);
    const Manifest manifest = Manifest::from_json(text, "model.json");
    const std::string written = manifest.json();
    require(Manifest::from_json(written, "again").json() == written, "a manifest that is written is read as it was");
    directory.write(inference::kManifestFile, text);
    write_tables(directory, manifest);
    if (manifest.dense.name != inference::kManifestFile && manifest.dense.name.size() <= 64)
      directory.write(manifest.dense.name, std::string("\2\0\0\0\0\0\0\0{}", 10));
    const InferenceModel model = open_packed_model(directory.path());
    require(model.description.tables.size() == manifest.tables.size(), "a model has its tables");
    for (const ModelFeature& f : model.description.features) require(f.ids > 0, "a feature has ids");
  });
}

}  // namespace tessera::fuzz
