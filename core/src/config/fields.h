// Describes every key of the config as data. Parsing, printing and the documentation use the same tables.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/config.h"

namespace tessera::config {

template <class S>
using Member = std::variant<bool S::*, int64_t S::*, double S::*, std::string S::*, std::optional<double> S::*,
                            std::optional<NumberOrWord> S::*, std::optional<bool> S::*, std::vector<std::string> S::*,
                            std::vector<int64_t> S::*, std::vector<double> S::*, PartSpec S::*, PartOptions S::*>;

// The allowed values of a key: bounds of a number, or of each number in a list; words that a string may be, or any if
// there are none.
struct Allowed {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};
};

template <class S>
struct Field {
  const char* name;
  Member<S> member;
  const char* unit;   // unit or shape of the value; may be empty
  const char* about;  // one line of sentences
  Allowed allowed = {};
};

template <class S>
const std::vector<Field<S>>& fields();

template <>
const std::vector<Field<PluginsConfig>>& fields<PluginsConfig>();
template <>
const std::vector<Field<JobConfig>>& fields<JobConfig>();
template <>
const std::vector<Field<CommConfig>>& fields<CommConfig>();
template <>
const std::vector<Field<ModelConfig>>& fields<ModelConfig>();
template <>
const std::vector<Field<LayerConfig>>& fields<LayerConfig>();
template <>
const std::vector<Field<HeadConfig>>& fields<HeadConfig>();
template <>
const std::vector<Field<TableConfig>>& fields<TableConfig>();
template <>
const std::vector<Field<DenseOptimizerConfig>>& fields<DenseOptimizerConfig>();
template <>
const std::vector<Field<PlannerConfig>>& fields<PlannerConfig>();
template <>
const std::vector<Field<DataConfig>>& fields<DataConfig>();
template <>
const std::vector<Field<HistoryConfig>>& fields<HistoryConfig>();
template <>
const std::vector<Field<ScheduleConfig>>& fields<ScheduleConfig>();
template <>
const std::vector<Field<ValidationConfig>>& fields<ValidationConfig>();
template <>
const std::vector<Field<ColumnConfig>>& fields<ColumnConfig>();
template <>
const std::vector<Field<MetricsConfig>>& fields<MetricsConfig>();
template <>
const std::vector<Field<PublishConfig>>& fields<PublishConfig>();
template <>
const std::vector<Field<ReportConfig>>& fields<ReportConfig>();

// One or two sentences for the reference about the section "job", "table_defaults", "table", ...
const char* introduction(std::string_view section);

// True for keys of [[table]] that [table_defaults] does not have.
bool only_of_one_table(const std::string& key);

// Calls visit(name, struct) for every section except [[layer]], [[head]], [[table]] and [[column]], in documentation
// order.
template <class C, class Visit>
void for_each_section(C& config, Visit&& visit) {
  visit("plugins", config.plugins);
  visit("job", config.job);
  visit("comm", config.comm);
  visit("model", config.model);
  visit("table_defaults", config.table_defaults);
  visit("dense_optimizer", config.dense_optimizer);
  visit("planner", config.planner);
  visit("data", config.data);
  visit("history", config.history);
  visit("schedule", config.schedule);
  visit("validation", config.validation);
  visit("metrics", config.metrics);
  visit("publish", config.publish);
  visit("report", config.report);
}

}  // namespace tessera::config
