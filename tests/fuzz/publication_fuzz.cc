// base-N.json and delta-N.json of a publication folder. An input is the value of "content"; its checksum is made right,
// so that reading gets past it.
#include <stdlib.h>

#include <filesystem>

#include "config/test_directory.h"
#include "fuzz.h"
#include "publishing/publication.h"
#include "summed_json.h"

namespace tessera::fuzz {
void fuzz_publication(Input input) {
  using publishing::Publication;
  static const test::TestDirectory directory;
  taken([&] {
    const std::string text = with_sum(R"("format": "tessera.publication", "version": 1, )", "", input);
    const Publication read = Publication::from_json(text, "delta-1.json");
    const std::string hash = publishing::write_publication(directory.path(), read);
    const Publication again = publishing::read_publication(directory.path(), read.kind, read.number);
    require(again.hash == hash && again.chain == read.chain && again.tables.size() == read.tables.size(),
            "a publication that is written is read as it was");
    std::filesystem::remove(directory.path() + "/" + read.name() + ".json");
    // the file does not exist
    if (read.kind == Publication::kDelta) (void)publishing::read_delta(directory.path(), read);
  });
}

}  // namespace tessera::fuzz
