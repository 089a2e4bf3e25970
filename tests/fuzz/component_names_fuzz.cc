// Names of components: "codec:int8(tcp?shm=false)". Additional options follow a zero byte.
#include "config/json.h"
#include "fuzz.h"
#include "tessera/runtime.h"

namespace tessera::fuzz {

void fuzz_component_names(Input input) {
  const std::string_view text = text_of(input);
  const size_t end = std::min(text.find('\0'), text.size());
  const std::string given(text.substr(std::min(end + 1, text.size())));
  taken([&] {
    ComponentName part = parse_component_name(text.substr(0, end));
    for (int level = 1;; ++level) {
      require(!part.id.empty() && level <= 8, "each of at most 8 levels has an id");
      const auto options = config::parse_json(part.options, {"the options"});
      require(options.is_object(), "options are an object");
      taken([&] { config::parse_json(all_options(given.empty() ? "{}" : given, part), {"all options"}); });
      if (part.inner.empty()) break;
      part = parse_component_name(part.inner);
    }
  });
}

}  // namespace tessera::fuzz
