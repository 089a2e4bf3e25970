#include "publishing/publication.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "config/fnv1a.h"
#include "config/json.h"

namespace tessera::publishing {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;
using config::JsonObject;

constexpr int64_t kPublicationVersion = 1;
constexpr const char* kPublicationFormat = "tessera.publication";
constexpr std::string_view kSuffix = ".json";
constexpr const char* kTensors = ".safetensors";
constexpr const char* kStaged = ".publishing";

std::string prefix_of(Publication::Kind kind) { return kind == Publication::kBase ? "base-" : "delta-"; }

std::string sum_text(uint32_t sum) {
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", sum);
  return text;
}

uint32_t sum_of(const std::string& text) {
  return static_cast<uint32_t>(
      ::crc32(0, reinterpret_cast<const unsigned char*>(text.data()), static_cast<uInt>(text.size())));
}

void rename_to(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) checkpoint::fail_with(error.value(), "rename", from);
}

OrderedJson content_of_publication(const Publication& p) {
  OrderedJson out = {{"kind", p.kind == Publication::kBase ? "base" : "delta"},
                     {"number", p.number},
                     {"chain", p.chain},
                     {"step", p.step},
                     {"time", p.time}};
  if (p.kind == Publication::kBase) {
    out["hash"] = p.hash;
    return out;
  }
  out["previous"] = p.previous;
  out["tables"] = OrderedJson::array();
  for (const Publication::Table& t : p.tables)
    out["tables"].push_back({{"name", t.name}, {"changed", t.changed}, {"removed", t.removed}});
  out["file"] = {{"name", p.file->name}, {"bytes", p.file->bytes}, {"crc32", sum_text(p.file->crc)}};
  return out;
}

Publication publication_from(const JsonObject& j, const std::string& content) {
  Publication p;
  const auto said = j.get<std::string>("kind");
  if (said != "base" && said != "delta") fail(Code::kDataLoss, "it is neither base nor delta");
  p.kind = said == "base" ? Publication::kBase : Publication::kDelta;
  p.number = j.within<int64_t>("number", 1, INT64_MAX - 1);
  p.chain = j.get<std::string>("chain");
  p.step = j.get<int64_t>("step");
  p.time = j.get<double>("time");
  if (p.kind == Publication::kBase) {
    p.hash = j.get<std::string>("hash");
    return p;
  }
  p.hash = hash_of(content);
  p.previous = j.get<std::string>("previous");
  for (const JsonObject& t : j.objects("tables"))
    p.tables.push_back({t.get<std::string>("name"), t.within<int64_t>("changed", 0, INT64_MAX / 64),
                        t.within<int64_t>("removed", 0, INT64_MAX / 64)});
  const JsonObject file = j.object("file");
  p.file = checkpoint::StoredFile{file.get<std::string>("name"), file.get<int64_t>("bytes"), file.hex("crc32")};
  if (p.file->name != p.name() + kTensors) fail(Code::kDataLoss, "its file is \"", p.file->name, '"');
  return p;
}

Tensor taken(const checkpoint::SafetensorsReader& from, const std::string& name, DType dtype, int64_t count) {
  const checkpoint::StoredTensor* found = from.find(name);
  if (found == nullptr || found->dtype != dtype || found->shape.empty() || found->shape[0] != count)
    fail(Code::kDataLoss, from.file().path(), " is damaged: it has no \"", name, "\" of ", count, ' ',
         to_string(dtype));
  return from.read(name);
}

}  // namespace

std::string hash_of(const std::string& text) {
  char out[17];
  std::snprintf(out, sizeof(out), "%016llx", static_cast<unsigned long long>(fnv1a(text)));
  return out;
}

std::string Publication::name_of(Kind kind, int64_t number) { return str_cat(prefix_of(kind), number); }

std::string write_publication(const std::string& directory, const Publication& what) {
  const OrderedJson content = content_of_publication(what);
  const std::string text = content.dump(), path = str_cat(directory, '/', what.name(), kSuffix);
  checkpoint::write_text(path + kStaged, OrderedJson{{"format", kPublicationFormat},
                                                     {"version", kPublicationVersion},
                                                     {"crc32", sum_text(sum_of(text))},
                                                     {"content", content}}
                                                 .dump(1) +
                                             "\n");
  rename_to(path + kStaged, path);
  // The publication is visible from here on. A failed sync of its name must not be reported as a failure: a follower
  // may have taken it, and the next publication would reuse its number.
  try {
    checkpoint::sync_directory(directory);
  } catch (const Error&) {
  }
  return what.kind == Publication::kBase ? what.hash : hash_of(text);
}

Publication Publication::from_json(const std::string& text, const std::string& path) {
  const OrderedJson root = config::parse_json(text, {path + " is damaged: it", Code::kDataLoss});
  try {
    const JsonObject j(root, {"", Code::kDataLoss});
    if (j.get<std::string>("format") != kPublicationFormat) fail(Code::kDataLoss, "it is not that of a publication");
    if (const auto version = j.get<int64_t>("version"); version > kPublicationVersion) {
      fail(Code::kUnimplemented, path, " is of publication format ", version, ", but this version reads formats up to ",
           kPublicationVersion, ": use the version of Tessera that wrote it, or a later one");
    }
    const std::string content = j.member("content").dump();
    if (j.get<std::string>("crc32") != sum_text(sum_of(content))) fail(Code::kDataLoss, "its checksum is wrong");
    return publication_from(j.object("content"), content);
  } catch (const Error& e) {
    if (e.code() == Code::kUnimplemented) throw;
    fail(Code::kDataLoss, path, " is damaged: ", e.what());
  }
}

Publication read_publication(const std::string& directory, Publication::Kind kind, int64_t number) {
  const std::string path = str_cat(directory, '/', Publication::name_of(kind, number), kSuffix);
  Publication out = Publication::from_json(checkpoint::read_text(path), path);
  if (out.kind != kind || out.number != number)
    fail(Code::kDataLoss, path, " is damaged: it is a copy of ", out.name(), " under another name");
  return out;
}

std::vector<int64_t> publications_in(const std::string& directory, Publication::Kind kind) {
  const std::string prefix = prefix_of(kind);
  std::vector<int64_t> out;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(kSuffix)) continue;
    const char* const last = name.data() + name.size() - kSuffix.size();
    int64_t number = 0;
    const auto [stop, wrong] = std::from_chars(name.data() + prefix.size(), last, number);
    if (wrong == std::errc() && stop == last && number > 0) out.push_back(number);
  }
  if (error) checkpoint::fail_with(error.value(), "list", directory);
  std::sort(out.begin(), out.end());
  return out;
}

checkpoint::StoredFile write_delta(const std::string& directory, const std::string& name, const Delta& delta) {
  std::map<std::string, Tensor> tensors;
  for (const DeltaTable& t : delta.tables) {
    tensors[str_cat("tables/", t.name, "/ids")] = t.ids;
    tensors[str_cat("tables/", t.name, "/rows")] = t.rows;
    tensors[str_cat("tables/", t.name, "/removed")] = t.removed;
  }
  for (const auto& [parameter, value] : delta.dense) tensors["dense/" + parameter] = value;
  checkpoint::StoredTensors announced;
  for (const auto& [tensor, value] : tensors) announced[tensor] = {value.dtype(), value.shape(), 0};
  const std::string file = name + kTensors, path = str_cat(directory, '/', file);
  checkpoint::SafetensorsWriter writer(path + kStaged, std::move(announced));
  for (const auto& [tensor, value] : tensors) writer.write(tensor, value);
  writer.file().sync();
  rename_to(path + kStaged, path);
  return {file, writer.file().size(), writer.file().crc32()};
}

Delta read_delta(const std::string& directory, const Publication& what) {
  const std::string path = str_cat(directory, '/', what.file->name);
  const auto open = [&] {
    try {
      return checkpoint::InputFile(path);
    } catch (const Error& e) {
      if (e.code() == Code::kNotFound) fail(Code::kDataLoss, e.what(), "; ", what.name(), kSuffix, " lists it");
      throw;
    }
  };
  checkpoint::InputFile file = open();
  if (file.size() != what.file->bytes)
    fail(Code::kDataLoss, path, " is damaged: it has ", file.size(), " bytes, and ", what.name(), kSuffix, " says ",
         what.file->bytes);
  if (file.crc32(0, file.size()) != what.file->crc)
    fail(Code::kDataLoss, path, " is damaged: its checksum is not the one in ", what.name(), kSuffix);
  const checkpoint::SafetensorsReader reader(std::move(file));
  Delta out;
  for (const Publication::Table& t : what.tables) {
    const std::string prefix = str_cat("tables/", t.name);
    out.tables.push_back({t.name, taken(reader, prefix + "/ids", DType::kInt64, t.changed),
                          taken(reader, prefix + "/rows", DType::kUInt8, t.changed),
                          taken(reader, prefix + "/removed", DType::kInt64, t.removed)});
  }
  constexpr std::string_view kDense = "dense/";
  for (const auto& [name, tensor] : reader.tensors()) {
    if (name.starts_with(kDense)) out.dense[name.substr(kDense.size())] = reader.read(name);
  }
  return out;
}

}  // namespace tessera::publishing
