#include "train/start_warnings.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "config/json.h"
#include "data/examples.h"
#include "tessera/layer_graph.h"
#include "tessera/runtime.h"
#include "train/drawn_ids.h"
#include "train/job_model.h"
#include "train/job_setup.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

bool is_in(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Rows of a data-parallel table do not travel, so repeated ones cannot travel once.
void warn_of_rows_that_stay(ModelTrainer& trainer, Names& out) {
  for (const auto& [path, tables] : trainer.parallel().sharded()) {
    for (const EmbeddingBagConfig& table : tables->tables()) {
      if (!table.use_index_dedup || tables->plan().at(table.name).combine != ParameterSharding::Combine::kDataParallel)
        continue;
      out.push_back(str_cat("use_index_dedup of table \"", table.name,
                            "\" has no effect, because the table is data-parallel: its rows do not travel"));
    }
  }
}

void warn_of_loss_without_effect(const StartingJob& job, Names& out) {
  const ProcessGroup& group = job.trainer.parallel().group();
  if (!job.config.comm.lossy.empty() && group.world_size() == 1) {
    out.emplace_back(
        "comm.lossy has no effect, because one rank sends nothing: start more with --nproc, or leave it out");
    return;
  }
  constexpr int64_t kRow = 64, kValues = 1024 * kRow;
  for (const auto& [name, carries] : {std::pair{"rows", Carries::kRows}, {"gradients", Carries::kRowGradients}}) {
    if (!job.config.comm.loses(name)) continue;
    if (group.wire_bytes({nullptr, 0, carries, kRow}, DType::kFloat32, kValues) < kValues * size_of(DType::kFloat32))
      continue;
    out.push_back(str_cat("comm.lossy has no effect on ", name, ", because the transport ", group.backend(),
                          " has no codec: take one that has, or leave it out"));
  }
}

// Columns that a job uses without a layer: groups of losses and keys of metrics.
std::set<std::string> columns_of_groups(const StartingJob& job) {
  std::set<std::string> out;
  for (const HeadConfig& h : job.config.heads) out.insert(h.groups);
  for (const std::string& key : job.metrics.keys()) out.insert(key);
  return out;
}

// The features that layers read, and "dense" if one takes the dense values.
std::set<std::string> read_by_layers(const ModelGraph& graph, const std::vector<EmbeddingBagConfig>& tables) {
  std::set<std::string> out;
  const GraphWiring wiring = wire(graph);
  for (size_t h = 0; h < graph.heads.size(); ++h) {
    for (const std::string& feature : features_of(graph, wiring, h, tables)) out.insert(feature);
  }
  const auto take = [&](const GraphLink& link) {
    if (!link.of_layer && graph.inputs[link.index].from == GraphInput::kDense) out.insert("dense");
  };
  for (const std::vector<GraphLink>& links : wiring.inputs) std::for_each(links.begin(), links.end(), take);
  std::for_each(wiring.heads.begin(), wiring.heads.end(), take);
  return out;
}

// The [[column]]s of ids that no table has.
Names columns_without_table(const StartingJob& job, const std::set<std::string>& grouped) {
  Names in_tables, out;
  for (const TableConfig& t : job.data.tables) in_tables.insert(in_tables.end(), t.features.begin(), t.features.end());
  for (const TableConfig& t : job.config.tables) {  // a popularity is counted in a column
    for (const std::string& feature : t.features) {
      if (is_drawn(feature)) in_tables.push_back(counted_column(feature));
    }
  }
  for (const ColumnConfig& c : job.config.columns) {
    for (const std::string& name : c.name) {
      const auto is_it = [&](const DataColumn& column) { return column.name == name; };
      const bool ids = std::any_of(job.data.data.columns.begin(), job.data.data.columns.end(), is_it);
      if (ids && !is_in(in_tables, name) && !grouped.contains(name)) out.push_back(name);
    }
  }
  return out;
}

// The tables and features that no layer reads. A table with a sequence that is read may have others, which answers
// leave out. A model needs a pooled table, so the only one may be unread if no layer reads any.
Names unread(const StartingJob& job, const std::set<std::string>& read, const std::set<std::string>& grouped) {
  const auto is_read = [&](const std::string& feature) { return read.contains(feature) || grouped.contains(feature); };
  const auto any_read = [&](const TableConfig& t) {
    return std::any_of(t.features.begin(), t.features.end(), is_read);
  };
  const auto is_excluded = [&](const std::string& name) {  // by model.inputs
    return !job.config.model.inputs.empty() && !is_in(job.config.model.inputs, name);
  };
  int64_t pooled = 0;
  bool pooled_read = false;
  for (const TableConfig& t : job.data.tables) {
    if (t.pooling == "none") continue;
    ++pooled;
    pooled_read = pooled_read || any_read(t);
  }
  Names out;
  for (const TableConfig& t : job.data.tables) {
    const bool needed = t.pooling != "none" && pooled == 1 && !pooled_read;
    if (needed || (t.pooling == "none" && any_read(t))) continue;
    if (!any_read(t)) {
      if (!is_excluded(t.name)) out.push_back(t.name);
      continue;
    }
    for (const std::string& feature : t.features) {
      if (!is_read(feature) && !is_excluded(feature)) out.push_back(feature);
    }
  }
  return out;
}

void warn_of_unread_inputs(const StartingJob& job, Names& out) {
  if (job.config.model.type != kGraphType) return;
  const std::vector<EmbeddingBagConfig> tables = embedding_configs(job.data.tables);
  const std::set<std::string> read = read_by_layers(job.trainer.graph(), tables), grouped = columns_of_groups(job);
  Names names;
  if (!job.data.data.dense.empty() && !read.contains("dense") &&
      (job.config.model.inputs.empty() || is_in(job.config.model.inputs, "dense")))
    names.emplace_back("dense");
  for (const Names& more : {unread(job, read, grouped), columns_without_table(job, grouped)})
    names.insert(names.end(), more.begin(), more.end());
  if (names.empty()) return;
  std::string list;
  for (const std::string& name : names) list += str_cat(list.empty() ? "\"" : ", \"", name, '"');
  out.push_back(str_cat("no layer reads ", list, ": name ", names.size() == 1 ? "it" : "them",
                        " among the inputs of a layer, or leave the ",
                        names.size() == 1 && names[0] != "dense" ? "column" : "columns", " out"));
}

// A key of [history], which is an option of the reader by now; empty: it is unset.
std::string history_key(const Config& config, const char* key) {
  const ComponentName reader = parse_component_name(config.data.reader);
  const auto options = config::parse_json(reader.options, {"the options of data.reader"});
  return reader.id == HistoryConfig().component ? options.value(key, std::string()) : "";
}

// A reader's samples for validation are no training samples, even if nothing validates with them.
void warn_of_unused_validation(const StartingJob& job, Names& out) {
  const ValidationConfig& v = job.config.validation;
  if (!job.data.data.validation || (v.split == "data" && v.fraction > 0)) return;
  const std::string split = history_key(job.config, "split");
  const std::string who =
      split.empty() ? str_cat("the reader \"", job.config.data.reader, '"') : str_cat("history.split = \"", split, '"');
  const std::string why = v.folds > 0      ? ", because validation.folds takes others"
                          : v.fraction > 0 ? str_cat(", because validation.split is \"", v.split, '"')
                                           : "";
  out.push_back(str_cat(who, " keeps ", job.data.data.validation.size(),
                        " samples for validation, and the job neither trains nor validates with them", why,
                        ": set validation.split = \"data\" and validation.fraction = 1.0",
                        v.folds > 0 ? " instead of the folds" : ""));
}

// True if no training sample has an id in a column of histories, and there is such a column.
bool histories_are_empty(const StartingJob& job) {
  const Dataset& data = job.data.data;
  if (!data.train.kept || data.train.kept->size() == 0) return false;
  bool any = false;
  for (const ColumnConfig& c : job.config.columns) {
    for (const std::string& name : c.name) {
      const auto at = std::find_if(data.columns.begin(), data.columns.end(),
                                   [&](const DataColumn& column) { return column.name == name; });
      if (at == data.columns.end() || !(c.column.empty() ? name : c.column).starts_with("history.")) continue;
      any = true;
      const auto key = at - data.columns.begin();
      for (int64_t s = 0; s < data.train.kept->size(); ++s) {
        const int32_t* lengths = data.train.kept->lengths(s);
        if (!lengths || lengths[key] > 0) return false;
      }
    }
  }
  return any;
}

void warn_of_empty_histories(const StartingJob& job, Names& out) {
  const std::string user = history_key(job.config, "user");
  if (!user.empty() && histories_are_empty(job))
    out.push_back(
        str_cat("the histories of all training samples are empty, because no event has an earlier one of the ",
                "same user: is history.user = \"", user, "\" the column of users?"));
}

void warn_of_what_the_run_is_too_short_for(const StartingJob& job, Names& out) {
  if (job.steps == JobSetup::kNoEnd || job.steps == 0) return;
  if (job.config.job.accumulate > job.steps)
    out.push_back(str_cat("job.accumulate = ", job.config.job.accumulate, ", but the run has only ", job.steps,
                          " batches, so the layers are updated once, at its end"));
  for (const auto& [key, rates] : {std::pair{"tables", &job.table_rates}, {"dense", &job.dense_rates}}) {
    if (rates->last_step() > job.steps)
      out.push_back(str_cat("schedule.", key, " has stages of ", rates->last_step(), " steps, but the run has only ",
                            job.steps, ": it ends at ", rates->factor(job.steps - 1), " times the learning rate"));
  }
}

void warn_of_nothing_to_train(const StartingJob& job, Names& out) {
  const ModelGraph& graph = job.trainer.graph();
  const auto weighs = [](const HeadSpec& h) { return h.weight > 0 && h.loss != kNoLoss; };
  if (std::none_of(graph.heads.begin(), graph.heads.end(), weighs)) {
    out.emplace_back("nothing is trained, because every head has weight = 0 or loss = \"none\"");
    return;
  }
  bool trains = std::any_of(graph.heads.begin(), graph.heads.end(), [](const HeadSpec& h) { return h.learn_weight; });
  for (size_t l = 0; l < graph.layers.size() && !trains; ++l)
    trains = graph.layers[l].trainable && !job.trainer.layers().parameters_of(l).empty();
  for (const TableConfig& t : job.data.tables) trains = trains || t.trainable;
  if (!trains) out.emplace_back("nothing is trained, because all tables and layers have trainable = false");
}

}  // namespace

std::vector<std::string> start_warnings(const StartingJob& job) {
  Names out;
  warn_of_loss_without_effect(job, out);
  warn_of_rows_that_stay(job.trainer, out);
  warn_of_unread_inputs(job, out);
  warn_of_unused_validation(job, out);
  warn_of_empty_histories(job, out);
  warn_of_what_the_run_is_too_short_for(job, out);
  if (job.steps > 0) warn_of_nothing_to_train(job, out);
  return out;
}

}  // namespace tessera
