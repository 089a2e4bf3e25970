// Decodes TOML tables into the config's structs. Internal to this folder, because only this header exposes toml++.
#pragma once

#include <toml++/toml.h>
#include <string>

#include "config/fields.h"

namespace tessera::config {

// Returns "job.toml:12" for a node from a file. An override has no lines: "--set job.seed=x".
std::string where(const toml::node& node);

// Sets the members that `table` names and leaves the others. `section` is its name in errors: "job".
template <class S>
void decode(const toml::table& table, const std::string& section, S& out);

// Decodes [table_defaults] in the same way, but refuses keys that only make sense for one table.
void decode_table_defaults(const toml::table& table, TableConfig& out);

// Sets one option in a component's JSON. A new option is added at the end.
void set_option(PartSpec& part, const std::string& key, const toml::node& value);
void set_option(PartOptions& options, const std::string& key, const toml::node& value);

// Throws kInvalidArgument with the nearest of `known`.
[[noreturn]] void unknown_key(const toml::node& at, const std::string& section, const std::string& key,
                              const std::vector<std::string>& known);

[[noreturn]] void wrong_type(const toml::node& at, const std::string& what, const std::string& expected);

extern template void decode(const toml::table&, const std::string&, PluginsConfig&);
extern template void decode(const toml::table&, const std::string&, JobConfig&);
extern template void decode(const toml::table&, const std::string&, CommConfig&);
extern template void decode(const toml::table&, const std::string&, ModelConfig&);
extern template void decode(const toml::table&, const std::string&, LayerConfig&);
extern template void decode(const toml::table&, const std::string&, HeadConfig&);
extern template void decode(const toml::table&, const std::string&, TableConfig&);
extern template void decode(const toml::table&, const std::string&, DenseOptimizerConfig&);
extern template void decode(const toml::table&, const std::string&, PlannerConfig&);
extern template void decode(const toml::table&, const std::string&, DataConfig&);
extern template void decode(const toml::table&, const std::string&, ScheduleConfig&);
extern template void decode(const toml::table&, const std::string&, ValidationConfig&);
extern template void decode(const toml::table&, const std::string&, ColumnConfig&);
extern template void decode(const toml::table&, const std::string&, MetricsConfig&);
extern template void decode(const toml::table&, const std::string&, PublishConfig&);
extern template void decode(const toml::table&, const std::string&, ReportConfig&);

}  // namespace tessera::config
