#include "train/warm_start.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "checkpoint/together.h"
#include "config/json.h"
#include "inference/float_tensors.h"
#include "tessera/abi/draft/on_demand.h"
#include "tessera/sdk/half.h"
#include "tessera/sdk/values.h"
#include "train/start_rows.h"

namespace tessera {
namespace {

using checkpoint::ModelTable;
using json = nlohmann::ordered_json;

using Hashes = std::map<std::string, std::string>;              // by table
using Words = std::map<std::string, std::vector<std::string>>;  // by table; words of rows 1, 2, ...

Words words_of(const std::string& encoding, const std::string& where) {
  Words out;
  if (encoding.empty()) return out;
  const json all = config::parse_json(encoding, {where, Code::kDataLoss});
  if (!all.is_object() || !all.contains("vocabularies")) return out;
  for (const auto& [table, words] : all["vocabularies"].items()) out[table] = words.get<std::vector<std::string>>();
  if (all.contains("words")) return out;
  for (auto& [table, words] : out) {  // earlier versions stored texts as written
    for (std::string& word : words) {
      std::string canonical;
      sdk::append_word(canonical, word);
      word.swap(canonical);
    }
  }
  return out;
}

// Finds the tables whose rows are hashes, with the hashes' settings, from an encoding.
Hashes hashes_of(const std::string& encoding, const std::string& where) {
  Hashes out;
  if (encoding.empty()) return out;
  const json all = config::parse_json(encoding, {where, Code::kDataLoss});
  if (!all.is_object() || !all.contains("columns")) return out;
  for (const json& column : all["columns"]) {
    if (column.value("ids", "") == "hash" || column.contains("cross"))
      out[column.value("table", "")] = all.value("hash", "fnv1a");
  }
  return out;
}

std::string encoding_of(const checkpoint::Manifest* manifest, const std::string& path) {
  if (!manifest) return "";
  const json progress = config::parse_json(manifest->progress, {path, Code::kDataLoss});
  return progress.is_object() && progress.contains("encoding") ? progress["encoding"].dump() : "";
}

// True if `name` is `wanted` or ends with it after a dot, because TorchRec programs wrap models in modules.
bool is_called(const std::string& name, const std::string& wanted) {
  return name == wanted || name.ends_with("." + wanted);
}

// Returns "embedding_bags.film.weight" for "sparse_arch.embedding_bag_collection.embedding_bags.film.weight".
std::string last_parts(const std::string& parameter, const std::string& table) {
  const std::string end = "." + table + ".weight";
  TESSERA_CHECK(parameter.ends_with(end), "a table's parameter has its name");
  const size_t before = parameter.rfind('.', parameter.size() - end.size() - 1);
  return before == std::string::npos ? parameter : parameter.substr(before + 1);
}

// The rows of a stored table.
class StoredRows {
 public:
  StoredRows(const Tensor& bytes, RowFormat format) : bytes_(bytes), half_(format == RowFormat::kFloat16) {}

  int64_t rows() const { return bytes_.size(0); }
  void copy(int64_t row, int64_t col, int64_t cols, float* to) const {
    const uint8_t* from = bytes_.data<uint8_t>() + row * bytes_.size(1);
    if (half_) {
      const auto* values = reinterpret_cast<const uint16_t*>(from) + col;
      std::transform(values, values + cols, to, [](uint16_t h) { return sdk::half_to_float(h); });
    } else {
      std::copy_n(reinterpret_cast<const float*>(from) + col, cols, to);
    }
  }

 private:
  Tensor bytes_;
  bool half_;
};

class Starter {
 public:
  Starter(const std::string& path, ModelTrainer& trainer, const std::string& encoding)
      : trainer_(trainer),
        group_(trainer.group()),
        tables_(checkpoint::model_tables(trainer.parallel())),
        words_here_(words_of(encoding, "the data's encoding")),
        hashes_here_(hashes_of(encoding, "the data's encoding")) {
    // it verifies checksums, which may take long
    checkpoint::together_at_length(group_, "opening of a checkpoint", [&] {
      tensors_.emplace(path);
      const std::string there = encoding_of(tensors_->manifest(), path);
      words_there_ = words_of(there, path);
      hashes_there_ = hashes_of(there, path);
      return "";
    });
  }

  WarmStart run() {
    for (const ModelTable& table : tables_) start(table);
    ParameterList dense = trainer_.layers().parameters();
    const ParameterList& buffers = trainer_.layers().buffers();
    dense.insert(dense.end(), buffers.begin(), buffers.end());
    for (const ParameterPtr& p : dense) start(*p);
    if (out_.tables + out_.parameters == 0)
      fail(Code::kInvalidArgument, tensors_->path(), " has no table and no parameter of this model");
    note_what_is_left();
    return std::move(out_);
  }

 private:
  template <class... Parts>
  void note(const Parts&... parts) {
    out_.notes.push_back(str_cat(parts...));
  }
  // Finds the stored tensor of a parameter, under any prefix; "": there is none.
  std::string stored_name(const std::string& wanted) {
    for (const auto& [name, tensor] : tensors_->all()) {
      if (is_called(name, wanted) && used_.insert(name).second) return name;
    }
    return "";
  }

  void start(const ModelTable& table) {
    const std::string& name = table.stored.name;
    const std::string stored = stored_name(last_parts(table.stored.parameter, name));
    if (stored.empty()) return note("table ", name, " is not there");
    const std::string keys = str_cat(stored, '/', name, ".keys");
    const bool keyed = tensors_->all().contains(keys) && used_.insert(keys).second;
    const bool on_demand = table.stored.keys.has_value();
    if ((on_demand || keyed) && words_here_.contains(name) != words_there_.contains(name))
      return note("table ", name, " has texts as ids, which were numbered by a vocabulary only ",
                  words_here_.contains(name) ? "here" : "there", ", and starts again");
    const auto here = hashes_here_.find(name), there = hashes_there_.find(name);
    if (here != hashes_here_.end() && there != hashes_there_.end() && here->second != there->second)
      return note("table ", name, " has texts as ids, hashed by ", there->second, " there and by ", here->second,
                  " here, and starts again");
    const std::vector<int64_t>& shape = tensors_->all().at(stored).shape;
    if (shape.size() != 2 || shape[1] != table.stored.dim)
      return note("table ", name, " is ", checkpoint::describe(tensors_->all().at(stored)), " there, and has ",
                  table.stored.dim, " values a row here");
    const std::vector<int64_t> ids = ids_there(name, keyed ? keys : "", shape[0], on_demand);
    RowFormat format = RowFormat::kFloat32;
    const Tensor bytes = tensors_->rows(stored, &format);
    ++out_.tables;
    if (on_demand) return start_on_demand(table, {bytes, format}, ids);
    start_all(table, {bytes, format}, ids);
  }

  // Returns the id in this job's data for each stored row; -1: none. Empty: rows keep their numbers, unless `listed`
  // asks for a list. `keys`: the tensor with the stored ids; "": ids are row numbers.
  std::vector<int64_t> ids_there(const std::string& table, const std::string& keys, int64_t rows, bool listed) const {
    const auto here = words_here_.find(table), there = words_there_.find(table);
    const bool words = here != words_here_.end() && there != words_there_.end();
    std::vector<int64_t> ids;
    if (!keys.empty()) {
      ids = tensors_->read(keys).to_vector<int64_t>();
      if (std::ssize(ids) != rows)
        fail(Code::kDataLoss, "\"", keys, "\" of ", tensors_->path(), " has ", ids.size(), " ids for ", rows, " rows");
    } else if (words || listed) {
      ids.resize(static_cast<size_t>(rows));
      std::iota(ids.begin(), ids.end(), 0);
    }
    if (!words) return ids;
    std::unordered_map<std::string, int64_t> row_here;
    for (size_t i = 0; i < here->second.size(); ++i) row_here.emplace(here->second[i], i + 1);
    for (int64_t& id : ids) {
      if (id == 0) continue;  // row 0 is for unknown words
      const bool known = id > 0 && id <= std::ssize(there->second);
      const auto found = known ? row_here.find(there->second[static_cast<size_t>(id - 1)]) : row_here.end();
      id = found == row_here.end() ? -1 : found->second;
    }
    return ids;
  }

  void start_all(const ModelTable& table, const StoredRows& rows, const std::vector<int64_t>& ids) {
    std::vector<int64_t> places(ids.empty() ? 0 : static_cast<size_t>(table.stored.rows), -1);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= 0 && ids[i] < table.stored.rows) places[static_cast<size_t>(ids[i])] = static_cast<int64_t>(i);
    }
    const auto place_of = [&](int64_t row) {
      return !ids.empty() ? places[static_cast<size_t>(row)] : row < rows.rows() ? row : -1;
    };
    int64_t taken = 0;
    for (int64_t row = 0; row < table.stored.rows; ++row) taken += place_of(row) >= 0 ? 1 : 0;
    if (taken < table.stored.rows)
      note("table ", table.stored.name, ": ", taken, " of ", table.stored.rows,
           " rows are there, the others start again");
    else if (rows.rows() > table.stored.rows)
      note("table ", table.stored.name, ": ", rows.rows() - table.stored.rows, " of its ", rows.rows(),
           " stored rows have no place here");
    set_rows(table, group_, [&](int64_t row, int64_t col, int64_t cols, float* to) {
      if (const int64_t place = place_of(row); place >= 0) rows.copy(place, col, cols, to);
    });
  }

  // Adds rows by their ids. The kernel keeps as many as it has capacity for.
  void start_on_demand(const ModelTable& table, const StoredRows& rows, const std::vector<int64_t>& ids) {
    std::vector<int64_t> own, places;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || (ids[i] >= table.id_bound && ids[i] != TSR_SHARED_ROW_ID)) continue;
      own.push_back(ids[i]);
      places.push_back(static_cast<int64_t>(i));
    }
    const int64_t kept = add_rows(table, group_, own, [&](int64_t i, int64_t col, int64_t cols, float* to) {
      rows.copy(places[static_cast<size_t>(i)], col, cols, to);
    });
    if (std::ssize(own) < rows.rows())
      note("table ", table.stored.name, ": ", rows.rows() - std::ssize(own), " of its ", rows.rows(),
           " stored rows have no place here");
    if (kept < std::ssize(own))
      note("table ", table.stored.name, ": ", kept, " of ", own.size(), " rows have room here, the others start again");
  }

  void start(const Parameter& p) {
    const std::string stored = stored_name(p.name);
    if (stored.empty()) return note("parameter ", p.name, " is not there");
    const checkpoint::StoredTensor& there = tensors_->all().at(stored);
    const std::vector<int64_t> shape(p.value.shape().begin(), p.value.shape().end());
    if (there.shape != shape || is_integer(there.dtype) != is_integer(p.value.dtype()))
      return note("parameter ", p.name, " is ", checkpoint::describe(there), " there, and ",
                  checkpoint::describe({p.value.dtype(), shape, 0}), " here");
    const Tensor value = tensors_->read(stored).to(p.value.dtype());
    if (p.value.stream())
      assign(p.value, value);
    else
      std::copy_n(static_cast<const char*>(value.raw()), value.bytes(), static_cast<char*>(p.value.raw()));
    ++out_.parameters;
  }

  void note_what_is_left() {
    constexpr int64_t kMost = 8;
    int64_t left = 0;
    std::string names;
    for (const auto& [name, tensor] : tensors_->all()) {
      if (used_.contains(name) || ++left > kMost) continue;
      names += str_cat(names.empty() ? "" : ", ", name);
    }
    if (left > kMost) names += str_cat(" and ", left - kMost, " more");
    if (left > 0) note("nothing here is called ", names);
  }

  ModelTrainer& trainer_;
  const ProcessGroup& group_;
  std::vector<ModelTable> tables_;
  Words words_here_, words_there_;
  Hashes hashes_here_, hashes_there_;
  std::optional<inference::FloatTensors> tensors_;
  std::set<std::string> used_;
  WarmStart out_;
};

}  // namespace

WarmStart start_from(const std::string& path, ModelTrainer& trainer, const std::string& encoding) {
  return Starter(path, trainer, encoding).run();
}

}  // namespace tessera
