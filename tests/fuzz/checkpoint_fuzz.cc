// checkpoint.json, and the training job's own entries in it. An input that begins with "{" is the value of "content",
// and its checksum is made right; any other input, without its first byte, is the whole file.
#include "checkpoint/manifest.h"
#include "fuzz.h"
#include "summed_json.h"
#include "train/saved_run.h"

namespace tessera::fuzz {
namespace {

void look_at(const checkpoint::TableEntry& table) {
  const auto fits = [](const checkpoint::StoredTensor& tensor) {
    require(tensor.bytes() >= 0, "a tensor's size can be counted");
  };
  fits(table.weight());
  for (size_t k = 0; k < table.states.size(); ++k) {
    fits(table.state(k));
    require(!table.state_name(k).empty(), "a state has a name");
  }
  if (table.extra_words > 0) fits(table.extra());
  if (table.removed) fits(table.removed_list());
  (void)table.state_list();
}

}  // namespace

void fuzz_checkpoint(Input input) {
  using checkpoint::Manifest;
  taken([&] {
    const std::string file = !input.empty() && input[0] != '{'
                                 ? std::string(text_of(input.subspan(1)))
                                 : with_sum(R"("format": "tessera.checkpoint", "version": 2, )", "", input);
    const Manifest manifest = Manifest::from_json(file, "checkpoint.json");
    for (const checkpoint::TableEntry& table : manifest.tables) look_at(table);
    for (const auto& [path, step] : manifest.steps) require(step >= 0, "steps are counted from 0");
    const std::string text = manifest.json();
    require(Manifest::from_json(text, "again").json() == text, "a manifest that is written is read as it was");
    taken([&] { manifest.files_of(checkpoint::kModel, "checkpoint.json"); });
    taken([&] {
      const SavedRun run = SavedRun::from_progress(manifest.progress, "checkpoint.json");
      require(run.step >= 0, "steps are counted from 0");
      run.check_same_data(nlohmann::ordered_json::object(), "checkpoint.json");
    });
  });
}

}  // namespace tessera::fuzz
