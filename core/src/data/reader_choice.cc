#include "data/readers.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "data/history_reader.h"
#include "tessera/abi/draft/reader.h"
#include "tessera/abi/draft/reader_paths.h"
#include "tessera/calls.h"
#include "tessera/sdk/draft/reader_paths.h"
#include "tessera/sdk/nearest.h"

namespace tessera::data {
namespace {

using Question = tsr_code (*)(void* self, const char* path, const char** answer, tsr_error* err);

std::optional<std::string> ask(const Component& reader, const char* what, Question question, const std::string& path) {
  if (question == nullptr) return std::nullopt;
  const char* answer = nullptr;
  plugin::call({reader, what, path}, question, reader.self(), path.c_str(), &answer);
  return answer == nullptr ? std::nullopt : std::optional<std::string>(answer);
}

// The reader with the options that it opens the path with; unset: it does not.
std::optional<std::string> opener(const Runtime& runtime, const std::string& id, const std::string& path) {
  ComponentPtr reader;
  try {
    reader = runtime.ask(TSR_READER_KIND, id);
  } catch (const Error&) {  // it cannot run here, or needs options
    return std::nullopt;
  }
  const auto* const paths = reader->extension<tsr_reader_paths>(TSR_READER_PATHS);
  if (paths == nullptr) {  // files that end in its name
    const bool ends = std::filesystem::path(path).extension().string() == "." + id;
    return ends ? std::optional(id) : std::nullopt;
  }
  const std::optional<std::string> options = ask(*reader, "opens", paths->opens, path);
  if (!options) return std::nullopt;
  return options->empty() ? id : str_cat(id, "?", *options);
}

void check_reader(const Runtime& runtime, const std::string& reader) {
  const std::string id = reader.substr(0, reader.find_first_of("?:("));
  if (runtime.has(TSR_READER_KIND, id)) return;
  std::vector<std::string> known = runtime.ids(TSR_READER_KIND);
  known.emplace_back(kGenerated);
  fail(Code::kInvalidArgument, "there is no reader \"", reader, "\": set data.reader to one of ", sdk::joined(known),
       sdk::nearest_text(id, known), " (others are in plugins whose folder [plugins] path has to name)");
}

}  // namespace

}  // namespace tessera::data

namespace tessera {

std::string reader_of(const Runtime& runtime, const DataConfig& data) {
  if (!data.reader.empty()) return data.reader;
  std::vector<std::string> found;
  for (const std::string& id : runtime.ids(TSR_READER_KIND)) {
    if (std::optional<std::string> reader = data::opener(runtime, id, data.path)) found.push_back(std::move(*reader));
  }
  if (found.size() == 1) return found[0];
  const std::string open =
      found.empty() ? "no reader plugin opens" : str_cat("the readers ", sdk::joined(found), " open");
  const char* const hint =
      !sdk::is_url(data.path)
          ? ": set data.reader, as in reader = \"csv\" (tessera plugins lists the readers)"
          : ": set data.reader to parquet or arrow, or bring the files here by `tessera copy URL FOLDER`";
  fail(Code::kInvalidArgument, "data.path is \"", data.path, "\", which ", open, hint);
}

void choose_reader(const Runtime& runtime, Config& config) {
  if (config.history.user.empty()) {
    config.data.reader = reader_of(runtime, config.data);
    return;
  }
  const std::string events = reader_of(runtime, config.data);
  config.data.reader = data::history_reader(config.history, events);
  config.data.later_reader = data::history_reader(data::without_split(config.history), events);
  config.history = {};
}

std::string description_of(const Runtime& runtime, const std::string& reader, const std::string& path) {
  data::check_reader(runtime, reader);
  const ComponentPtr component = runtime.create(TSR_READER_KIND, reader);
  const auto* const paths = component->extension<tsr_reader_paths>(TSR_READER_PATHS);
  return paths == nullptr ? "" : data::ask(*component, "describe", paths->describe, path).value_or("");
}

}  // namespace tessera
