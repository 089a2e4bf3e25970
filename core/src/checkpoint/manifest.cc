#include "checkpoint/manifest.h"

#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <limits>
#include <set>
#include <string_view>

#include "config/json.h"
#include "modules/row_figures.h"

namespace tessera::checkpoint {
namespace {

using OrderedJson = nlohmann::ordered_json;
using config::JsonObject;

constexpr int64_t kVersion = 3;                    // a checkpoint that has a base
constexpr int64_t kWholeVersion = 2;               // a checkpoint without a base; 1: one file of each kind
constexpr int64_t kFileBytes = int64_t{16} << 20;  // at this size a new file begins
constexpr int64_t kMostFiles = 128;  // or at this fraction of the total, so that not too many files are open
constexpr std::string_view kSuffix = ".safetensors";

std::string hex(uint32_t value) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out(8, '0');
  for (int i = 7; i >= 0; --i, value >>= 4) out[static_cast<size_t>(i)] = kDigits[value & 15];
  return out;
}

uint32_t crc_of(const std::string& text) {
  return static_cast<uint32_t>(
      ::crc32(0, reinterpret_cast<const unsigned char*>(text.data()), static_cast<uInt>(text.size())));
}

// JSON has no infinity; null stands for it.
double number(const JsonObject& j, const char* key) {
  return j.member(key).is_null() ? std::numeric_limits<double>::infinity() : j.get<double>(key);
}

// Reads a whole number of at least `least`.
int64_t count(const JsonObject& j, const char* key, int64_t least) {
  constexpr int64_t kMost = int64_t{1} << 53;  // every JSON reader has numbers up to this exactly
  const auto value = j.get<int64_t>(key);
  if (value < least || value > kMost) j.wrong(key, " is ", value, ", and must lie in [", least, ", ", kMost, "]");
  return value;
}

OrderedJson to_json(const TableEntry& t) {
  OrderedJson states = OrderedJson::array();
  for (const Lookup::State& s : t.states) states.push_back({{"name", s.name}, {"per_row", s.per_row}});
  OrderedJson out = {
      {"parameter", t.parameter},
      {"name", t.name},
      {"rows", t.rows},
      {"dim", t.dim},
      {"dtype", to_string(t.dtype)},
      {"optimizer",
       {{"name", t.optimizer.name}, {"options", t.optimizer.options}, {"max_gradient", t.optimizer.max_gradient}}},
      {"learning_rate", t.learning_rate},
      {"states", states},
      {"column_cuts", t.cuts}};
  if (t.extra_words > 0) {
    out["extra_words"] = t.extra_words;
    out["kernel"] = t.kernel;
  }
  if (t.keys) out["keys"] = *t.keys;
  if (t.changes) out["changes"] = true;
  if (t.removed) out["removed"] = *t.removed;
  if (!t.table_extras.empty()) out["table_extras"] = t.table_extras;
  if (t.figures) out["figures"] = to_json(*t.figures);
  return out;
}

// True if the bytes of `rows` rows with `values` values each can be counted without overflow, whatever their type.
bool countable(int64_t rows, int64_t values) {
  int64_t bytes = 0;
  return !__builtin_mul_overflow(rows, values, &bytes) && !__builtin_mul_overflow(bytes, 8, &bytes);
}

// Checks cuts and states, because the sizes of tensors are computed from them.
void check_table(const TableEntry& t) {
  int64_t left = t.dim, extra = 0;
  for (int64_t width : t.cuts) {
    if (width < 1 || width > left) fail(Code::kDataLoss, "the column cuts of table \"", t.name, "\" do not fit");
    left -= width;
  }
  if (left != 0)
    fail(Code::kDataLoss, "the column cuts of table \"", t.name, "\" leave ", left, " of ", t.dim, " columns");
  if (!countable(t.stored_rows(), t.dim))
    fail(Code::kDataLoss, "table \"", t.name, "\" has ", t.stored_rows(), " x ", t.dim,
         " values, more than there can be");
  if (__builtin_mul_overflow(std::ssize(t.cuts), t.extra_words, &extra) || !countable(t.stored_rows(), extra))
    fail(Code::kDataLoss, "table \"", t.name, "\" has ", t.extra_words, " extra words, more than there can be");
  if (std::any_of(t.table_extras.begin(), t.table_extras.end(), [](int64_t n) { return n < 0; }))
    fail(Code::kDataLoss, "table \"", t.name, "\" has a negative number of bytes for a shard");
  if (t.removed && !t.changes) fail(Code::kDataLoss, "table \"", t.name, "\" has removed ids, but holds no changes");
  if (t.changes && (!t.keys || (!t.removed && *t.keys > t.rows)))
    fail(Code::kDataLoss, "table \"", t.name, "\" has more changed rows than rows, or does not say how many");
  std::set<std::string> names;
  for (const Lookup::State& s : t.states) {
    if (s.name.empty() || !names.insert(s.name).second)
      fail(Code::kDataLoss, "table \"", t.name, "\" has two states \"", s.name, "\", or one without a name");
  }
}

TableEntry table_from(const JsonObject& j) {
  TableEntry t{.parameter = j.get<std::string>("parameter"),
               .name = j.get<std::string>("name"),
               .rows = count(j, "rows", 0),
               .dim = count(j, "dim", 1),
               .dtype = dtype_from(j.get<std::string>("dtype"))};
  const JsonObject optimizer = j.object("optimizer");
  t.optimizer.name = optimizer.get<std::string>("name");
  t.optimizer.options = optimizer.get<std::string>("options");
  t.optimizer.max_gradient = number(optimizer, "max_gradient");
  t.learning_rate = number(j, "learning_rate");
  for (const JsonObject& s : j.objects("states"))
    t.states.push_back({s.get<std::string>("name"), s.get<bool>("per_row")});
  t.cuts = j.get<std::vector<int64_t>>("column_cuts");
  if (j.has("extra_words")) t.extra_words = count(j, "extra_words", 1);
  if (j.has("kernel")) t.kernel = j.get<std::string>("kernel");
  if (j.has("keys")) t.keys = count(j, "keys", 0);
  if (j.has("changes")) t.changes = j.get<bool>("changes");
  if (j.has("removed")) t.removed = count(j, "removed", 0);
  if (j.has("table_extras")) t.table_extras = j.get<std::vector<int64_t>>("table_extras");
  if (j.has("figures")) t.figures = row_figures_from(j.object("figures"));
  check_table(t);
  return t;
}

Manifest manifest_from(const JsonObject& j) {
  Manifest m;
  m.world_size = static_cast<int>(std::min<int64_t>(INT32_MAX, count(j, "world_size", 1)));
  m.progress = j.get<std::string>("progress");
  std::set<std::string> parameters;
  for (const JsonObject& t : j.objects("tables")) {
    m.tables.push_back(table_from(t));
    const std::string& name = m.tables.back().parameter;
    if (!parameters.insert(name).second) fail(Code::kDataLoss, "there are two tables \"", name, "\"");
  }
  for (const JsonObject& s : j.objects("collections"))
    m.steps.emplace_back(s.get<std::string>("path"), count(s, "step", 0));
  m.dense_optimizer = j.get<std::vector<std::vector<std::string>>>("dense_optimizer");
  for (const JsonObject& f : j.objects("files")) {
    m.files.push_back({f.get<std::string>("name"), count(f, "bytes", 0), f.hex("crc32")});
    if (m.files.back().name.find('/') != std::string::npos)
      fail(Code::kDataLoss, "\"", m.files.back().name, "\" is not a file next to it");
  }
  if (j.has("base")) {
    const JsonObject base = j.object("base");
    m.base = Manifest::Base{base.get<std::string>("name"), base.hex("crc32")};
    if (m.base->name.empty() || m.base->name.find('/') != std::string::npos || m.base->name.starts_with('.'))
      fail(Code::kDataLoss, "its base \"", m.base->name, "\" is not a directory next to it");
  }
  const auto changes = [](const TableEntry& t) { return t.changes; };
  if (!m.base && std::any_of(m.tables.begin(), m.tables.end(), changes))
    fail(Code::kDataLoss, "it holds changes, but names no base for them");
  return m;
}

}  // namespace

StoredTensor TableEntry::weight() const { return {dtype, {stored_rows(), dim}, 0}; }

int64_t TableEntry::state_width(size_t k) const { return states[k].per_row ? static_cast<int64_t>(cuts.size()) : dim; }

StoredTensor TableEntry::state(size_t k) const {
  if (states[k].per_row && cuts.size() == 1) return {DType::kFloat32, {stored_rows()}, 0};
  return {DType::kFloat32, {stored_rows(), state_width(k)}, 0};
}

std::string TableEntry::state_name(size_t k) const { return str_cat(parameter, '/', name, '.', states[k].name); }

StoredTensor TableEntry::extra() const { return {DType::kInt32, {stored_rows(), extra_width()}, 0}; }

std::string TableEntry::extra_name() const { return str_cat(parameter, '/', name, ".extra"); }

StoredTensor TableEntry::key_list() const { return {DType::kInt64, {stored_rows()}, 0}; }

std::string TableEntry::keys_name() const { return str_cat(parameter, '/', name, ".keys"); }

StoredTensor TableEntry::removed_list() const { return {DType::kInt64, {removed.value_or(0)}, 0}; }

std::string TableEntry::removed_name() const { return str_cat(parameter, '/', name, ".removed"); }

std::string TableEntry::table_extra_name(size_t shard) const {
  return str_cat(parameter, '/', name, ".table_extra.", shard);
}

std::string TableEntry::state_list() const {
  std::string out;
  for (const Lookup::State& s : states) out += str_cat(out.empty() ? "" : ", ", s.name, s.per_row ? " (per row)" : "");
  return out.empty() ? "none" : out;
}

const TableEntry* Manifest::find(const std::string& parameter) const {
  for (const TableEntry& t : tables) {
    if (t.parameter == parameter) return &t;
  }
  return nullptr;
}

std::vector<Manifest::File> Manifest::files_of(const std::string& kind, const std::string& path) const {
  std::vector<File> out;
  std::copy_if(files.begin(), files.end(), std::back_inserter(out),
               [&](const File& f) { return f.name.starts_with(kind) && f.name.ends_with(kSuffix); });
  if (out.empty()) fail(Code::kDataLoss, path, " lists no file ", kind, kSuffix);
  return out;
}

std::string Manifest::json() const {
  OrderedJson content = {{"world_size", world_size}, {"progress", progress}};
  content["collections"] = OrderedJson::array();
  for (const auto& [path, step] : steps) content["collections"].push_back({{"path", path}, {"step", step}});
  content["tables"] = OrderedJson::array();
  for (const TableEntry& t : tables) content["tables"].push_back(to_json(t));
  content["dense_optimizer"] = dense_optimizer;
  content["files"] = OrderedJson::array();
  for (const File& f : files) content["files"].push_back({{"name", f.name}, {"bytes", f.bytes}, {"crc32", hex(f.crc)}});
  if (base) content["base"] = {{"name", base->name}, {"crc32", hex(base->crc)}};
  const int64_t version = base ? kVersion : kWholeVersion;
  try {
    const std::string sum = hex(crc_of(content.dump()));
    return OrderedJson{{"format", "tessera.checkpoint"}, {"version", version}, {"crc32", sum}, {"content", content}}
               .dump(1) +
           "\n";
  } catch (const nlohmann::json::exception&) {
    fail(Code::kInvalidArgument,
         "a checkpoint's texts must be UTF-8: names of tables, collections and options, progress");
  }
}

Manifest Manifest::from_json(const std::string& text, const std::string& path) {
  const OrderedJson root = config::parse_json(text, {path + " is damaged: it", Code::kDataLoss});
  try {
    const JsonObject j(root, {"", Code::kDataLoss});
    if (j.get<std::string>("format") != "tessera.checkpoint") fail(Code::kDataLoss, "it is not that of a checkpoint");
    const auto version = j.get<int64_t>("version");
    if (version > kVersion) {
      fail(Code::kUnimplemented, path, " is of checkpoint format ", version, ", but this version reads formats up to ",
           kVersion, ": use the version of Tessera that wrote it, or a later one");
    }
    if (j.get<std::string>("crc32") != hex(crc_of(j.member("content").dump())))
      fail(Code::kDataLoss, "its checksum is wrong");
    return manifest_from(j.object("content"));
  } catch (const Error& e) {
    if (e.code() == Code::kUnimplemented) throw;
    fail(Code::kDataLoss, path, " is damaged: ", e.what());
  }
}

Manifest manifest_in(const std::string& directory) {
  const std::string path = str_cat(directory, '/', kManifestFile);
  return Manifest::from_json(read_text(path), path);
}

InputFile open_listed(const std::string& directory, const Manifest::File& file) {
  const std::string manifest = str_cat(directory, '/', kManifestFile);
  try {
    InputFile opened(str_cat(directory, '/', file.name));
    if (opened.size() == file.bytes) return opened;
    fail(Code::kDataLoss, opened.path(), " has ", opened.size(), " bytes, and ", manifest, " says ", file.bytes);
  } catch (const Error& e) {
    if (e.code() == Code::kNotFound) fail(Code::kDataLoss, e.what(), ", and ", manifest, " lists it");
    throw;
  }
}

void fail_wrong_sum(const std::string& directory, const Manifest::File& file) {
  fail(Code::kDataLoss, directory, '/', file.name, " is damaged: its checksum is not the one in ", directory, '/',
       kManifestFile);
}

int64_t bytes_of(const StoredTensors& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.bytes();
  return bytes;
}

std::string index_name(const std::string& kind) { return str_cat(kind, kSuffix, ".index.json"); }

bool is_file_name(const std::string& name) {
  if (name == kManifestFile) return true;
  for (const std::string kind : {kModel, kOptimizer}) {
    if (name == index_name(kind) || name == str_cat(kind, kSuffix)) return true;
    constexpr std::string_view kPart = "-00000-of-00000";
    if (name.size() != kind.size() + kPart.size() + kSuffix.size() || !name.starts_with(kind)) continue;
    std::string part = name.substr(kind.size(), kPart.size());
    std::replace_if(
        part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; }, '0');
    if (part == kPart && name.ends_with(kSuffix)) return true;
  }
  return false;
}

std::vector<TensorFile> split_by_table(const std::string& kind, StoredTensors others,
                                       const std::vector<StoredTensors>& tables) {
  const auto add = [](StoredTensors& to, const StoredTensors& from) {
    for (const auto& [name, tensor] : from) {
      if (!to.emplace(name, tensor).second)
        fail(Code::kInvalidArgument, "two tensors of the model have the name \"", name, "\"");
    }
  };
  int64_t all = 0, bytes = bytes_of(others);
  for (const StoredTensors& table : tables) all += bytes_of(table);
  StoredTensors known = others;
  std::vector<TensorFile> files{{"", std::move(others)}};
  for (const StoredTensors& table : tables) {
    if (bytes >= std::max(kFileBytes, all / kMostFiles)) {
      files.emplace_back();
      bytes = 0;
    }
    add(known, table);
    add(files.back().tensors, table);
    bytes += bytes_of(table);
  }
  for (size_t i = 0; i < files.size(); ++i) {
    char part[48] = "";
    if (files.size() > 1) std::snprintf(part, sizeof(part), "-%05zu-of-%05zu", i + 1, files.size());
    files[i].name = str_cat(kind, part, kSuffix);
  }
  return files;
}

std::string index_of(const std::vector<TensorFile>& files) {
  int64_t bytes = 0;
  OrderedJson map = OrderedJson::object();
  for (const TensorFile& file : files) {
    for (const auto& [name, tensor] : file.tensors) map[name] = file.name;
    bytes += bytes_of(file.tensors);
  }
  return OrderedJson{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}}.dump(1) + "\n";
}

}  // namespace tessera::checkpoint
