#include "checkpoint/manifest.h"

#include <zlib.h>

#include <nlohmann/json.hpp>
#include <numeric>

namespace tessera::checkpoint {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kVersion = 1;

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

OrderedJson to_json(const TableEntry& t) {
  OrderedJson states = OrderedJson::array();
  for (const Lookup::State& s : t.states) states.push_back({{"name", s.name}, {"per_row", s.per_row}});
  return {{"parameter", t.parameter},
          {"name", t.name},
          {"rows", t.rows},
          {"dim", t.dim},
          {"dtype", to_string(t.dtype)},
          {"optimizer",
           {{"name", t.optimizer.name}, {"options", t.optimizer.options}, {"max_gradient", t.optimizer.max_gradient}}},
          {"learning_rate", t.learning_rate},
          {"states", states},
          {"column_cuts", t.cuts}};
}

TableEntry table_from(const OrderedJson& j) {
  TableEntry t;
  t.parameter = j.at("parameter").get<std::string>();
  t.name = j.at("name").get<std::string>();
  t.rows = j.at("rows").get<int64_t>();
  t.dim = j.at("dim").get<int64_t>();
  t.dtype = dtype_from(j.at("dtype").get<std::string>());
  t.optimizer.name = j.at("optimizer").at("name").get<std::string>();
  t.optimizer.options = j.at("optimizer").at("options").get<std::string>();
  t.optimizer.max_gradient = j.at("optimizer").at("max_gradient").get<double>();
  t.learning_rate = j.at("learning_rate").get<double>();
  for (const OrderedJson& s : j.at("states"))
    t.states.push_back({s.at("name").get<std::string>(), s.at("per_row").get<bool>()});
  t.cuts = j.at("column_cuts").get<std::vector<int64_t>>();
  int64_t left = t.dim;
  for (int64_t width : t.cuts) {
    if (width < 1 || width > left) fail(Code::kDataLoss, "the column cuts of table \"", t.name, "\" do not fit");
    left -= width;
  }
  if (left != 0 || t.dim < 1 || t.rows < 0)
    fail(Code::kDataLoss, "table \"", t.name, "\" has ", t.rows, " x ", t.dim, " values, and cuts that do not fit");
  return t;
}

Manifest manifest_from(const OrderedJson& j) {
  Manifest m;
  m.world_size = j.at("world_size").get<int>();
  m.progress = j.at("progress").get<std::string>();
  for (const OrderedJson& t : j.at("tables")) m.tables.push_back(table_from(t));
  for (const OrderedJson& s : j.at("collections"))
    m.steps.emplace_back(s.at("path").get<std::string>(), s.at("step").get<int64_t>());
  m.dense_optimizer = j.at("dense_optimizer").get<std::vector<std::vector<std::string>>>();
  for (const OrderedJson& f : j.at("files")) {
    m.files.push_back({f.at("name").get<std::string>(), f.at("bytes").get<int64_t>(),
                       static_cast<uint32_t>(std::stoul(f.at("crc32").get<std::string>(), nullptr, 16))});
  }
  return m;
}

}  // namespace

StoredTensor TableEntry::weight() const { return {dtype, {rows, dim}, 0}; }

int64_t TableEntry::state_width(size_t k) const { return states[k].per_row ? static_cast<int64_t>(cuts.size()) : dim; }

StoredTensor TableEntry::state(size_t k) const {
  if (states[k].per_row && cuts.size() == 1) return {DType::kFloat32, {rows}, 0};
  return {DType::kFloat32, {rows, state_width(k)}, 0};
}

std::string TableEntry::state_name(size_t k) const { return cat(parameter, '/', name, '.', states[k].name); }

std::string TableEntry::state_list() const {
  std::string out;
  for (const Lookup::State& s : states) out += cat(out.empty() ? "" : ", ", s.name, s.per_row ? " (per row)" : "");
  return out.empty() ? "none" : out;
}

const TableEntry* Manifest::find(const std::string& parameter) const {
  for (const TableEntry& t : tables) {
    if (t.parameter == parameter) return &t;
  }
  return nullptr;
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
  try {
    const std::string sum = hex(crc_of(content.dump()));
    return OrderedJson{{"format", "tessera.checkpoint"}, {"version", kVersion}, {"crc32", sum}, {"content", content}}
               .dump(1) +
           "\n";
  } catch (const nlohmann::json::exception& e) {
    fail(Code::kInvalidArgument, "a checkpoint's texts must be UTF-8: ", e.what());
  }
}

Manifest Manifest::from_json(const std::string& text, const std::string& path) {
  try {
    const auto j = OrderedJson::parse(text);
    if (j.at("format") != "tessera.checkpoint") fail(Code::kDataLoss, "it is none of a checkpoint");
    const auto version = j.at("version").get<int64_t>();
    if (version > kVersion) {
      fail(Code::kUnimplemented, path, " is of checkpoint format ", version, ", and this version reads formats up to ",
           kVersion, ": use the version of Tessera that wrote it, or a later one");
    }
    if (j.at("crc32") != hex(crc_of(j.at("content").dump()))) fail(Code::kDataLoss, "its checksum is another");
    return manifest_from(j.at("content"));
  } catch (const Error& e) {
    if (e.code() == Code::kUnimplemented) throw;
    fail(Code::kDataLoss, path, " is damaged: ", e.what());
  } catch (const std::exception& e) {  // of the JSON library, and of numbers in texts
    fail(Code::kDataLoss, path, " is damaged: ", e.what());
  }
}

}  // namespace tessera::checkpoint
