#include "data/history_reader.h"

#include <type_traits>
#include <variant>

#include "config/fields.h"
#include "config/json.h"
#include "tessera/runtime.h"

namespace tessera::data {
namespace {

std::string escaped(const std::string& text) {
  constexpr std::string_view kHex = "0123456789ABCDEF", kMeaning = "%&?(),\"\\";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (kMeaning.find(c) == std::string_view::npos && byte >= 0x20)
      out += c;
    else
      ((out += '%') += kHex[byte / 16]) += kHex[byte % 16];
  }
  return out;
}

template <class T>
std::string option_text(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return str_cat('"', escaped(value), '"');
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    std::string all;
    for (const std::string& text : value) all += (all.empty() ? "" : ",") + escaped(text);
    return str_cat('"', all, '"');
  } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>) {
    return nlohmann::ordered_json(value).dump();
  } else {
    return {};  // [history] has no such key
  }
}

}  // namespace

std::string history_reader(const HistoryConfig& history, const std::string& reader) {
  if (history.user.empty()) return reader;
  const HistoryConfig defaults;
  std::string options;
  for (const auto& field : config::fields<HistoryConfig>()) {
    if (field.name == std::string_view("component")) continue;
    std::visit(
        [&](auto member) {
          if (history.*member == defaults.*member) return;
          options += str_cat(options.empty() ? "?" : "&", field.name, "=", option_text(history.*member));
        },
        field.member);
  }
  return str_cat(history.component, options, "(", reader, ")");
}

void check_same_histories(const std::string& trained, const Config& config) {
  const ComponentName was = parse_component_name(trained);
  const std::string& reader = config.data.reader.empty() ? was.inner : config.data.reader;  // "": the files tell
  if (reader.empty()) return;
  const ComponentName is = parse_component_name(history_reader(config.history, reader));
  if (was.inner.empty() || is.inner.empty() || was.id != is.id) return;
  const auto theirs = config::parse_json(was.options, {"the options of the model's reader"});
  const auto mine = config::parse_json(is.options, {"the options of the reader"});
  const auto text = [](const auto& options, const char* key) {
    const auto at = options.find(key);
    return at == options.end() ? std::string("its default") : at->dump();
  };
  for (const char* key : {"user", "time", "columns", "length", "keep", "repeats", "by", "values"}) {
    if (text(mine, key) == text(theirs, key)) continue;
    fail(Code::kInvalidArgument, "history.", key, " is ", text(mine, key), ", but ", text(theirs, key),
         " in the job that trained the model, so it would get other histories: set it to the same");
  }
}

HistoryConfig without_split(HistoryConfig history) {
  const HistoryConfig defaults;
  history.split = defaults.split;
  history.validation_from = defaults.validation_from;
  history.test_from = defaults.test_from;
  history.validation_share = defaults.validation_share;
  history.test_share = defaults.test_share;
  return history;
}

}  // namespace tessera::data
