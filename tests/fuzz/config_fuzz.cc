// Config files, and overrides: the lines after one that is "---".
#include "fuzz.h"
#include "tessera/config.h"

namespace tessera::fuzz {

void fuzz_config(Input input) {
  constexpr std::string_view kMark = "\n---\n";
  std::string_view text = text_of(input), rest;
  if (const size_t mark = text.find(kMark); mark != std::string_view::npos) {
    rest = text.substr(mark + kMark.size());
    text = text.substr(0, mark);
  }
  std::vector<std::string> overrides;
  while (!rest.empty() && overrides.size() < 8) {
    overrides.emplace_back(rest.substr(0, rest.find('\n')));
    rest.remove_prefix(std::min(rest.size(), overrides.back().size() + 1));
  }
  taken([&] {
    const Config config = parse_config(std::string(text), "job.toml", overrides);
    const std::string effective = to_toml(config);
    require(to_toml(parse_config(effective, "again")) == effective, "the effective config is read as it was");
    taken([&] { tables_of(config, {{"user", 10, "sum"}, {"film", 20, "mean"}}); });
  });
}

}  // namespace tessera::fuzz
