// tessera plan: plans for a config or a list of tables, and shows how two plans differ.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

#include "command.h"
#include "config/json.h"
#include "job_config.h"
#include "options.h"
#include "outputs.h"
#include "plan/picture.h"
#include "plan/scale.h"
#include "planner/table_json.h"
#include "plugin_watch.h"
#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/layer_graph.h"
#include "tessera/planner.h"
#include "tessera/process_group.h"
#include "tessera/step_figures.h"
#include "tessera/train_job.h"
#include "wrapped.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

constexpr char kForms[] =
    "--config FILE | --tables FILE [OPTIONS]\n"
    "--config FILE | --tables FILE --scale WORLDS [OPTIONS]\n"
    "--diff PLAN PLAN";

constexpr char kAbout[] =
    "Plans the sharding of a job's tables and prints the plan, in the form that --format names: as tables with "
    "bytes and times (table), as the file that planner.plan reads (json), as TorchRec prints it (torchrec), or as "
    "the line in TorchRec's tutorial (tutorial). docs/plans.md describes FILE and PLAN.\n\n"
    "With --scale, plans for each of several world sizes, and prints what a step of each is predicted to cost, up to "
    "which it pays to add ranks, and how often to save: docs/scale.md.";

struct Arguments {
  std::string config, model, tables, compute_device, format, explain, cost_model, topology, picture, scale, network;
  std::vector<std::string> set, diff;
  int world_size = 0, local_world_size = 0, nproc = 0;
  int64_t batch_size = 0;
  double host_days = 0, disk_mb_s = 0;
  bool torchrec_limits = false, no_data = false;
  std::string search;
  double time_limit_s = std::numeric_limits<double>::quiet_NaN();  // NaN: not given
  std::vector<std::string> hbm_gib, ddr_gib, ssd_gib;
};

// Refuses options that have no effect beside --scale, or without it.
void check_scale(const Arguments& a, const po::variables_map& given) {
  const auto set = [&](const char* name) { return given.contains(name) && !given[name].defaulted(); };
  if (a.scale.empty()) {
    for (const char* name : {"host-days", "disk-mb-s"}) {
      if (set(name)) throw UsageError(str_cat("--", name, " has no effect without --scale"));
    }
    return;
  }
  for (const char* name : {"world-size", "nproc", "explain", "picture", "diff"}) {
    if (set(name)) throw UsageError(str_cat("--", name, " and --scale exclude each other"));
  }
  if (a.format != "table" && a.format != "json")
    throw UsageError(str_cat("--format of --scale is table or json, not ", a.format));
  for (const auto& [name, value] : {std::pair("host-days", a.host_days), std::pair("disk-mb-s", a.disk_mb_s)}) {
    if (!(value > 0 && std::isfinite(value)))
      throw UsageError(str_cat("--", name, " takes a positive number, not ", value));
  }
}

// Nothing if help was printed.
std::optional<Arguments> parse(const std::vector<std::string>& args) {
  Arguments a;
  Options options("plan", kForms, kAbout);
  auto add = options.add_options();
  add("config", po::value(&a.config), "plan this job as tessera train does, with the properties of its data");
  add("model", po::value(&a.model), "use the layers of this model instead, as tessera train --model does");
  add("no-data", po::bool_switch(&a.no_data),
      "do not read the job's data: use the tables of the config, and guess their ids");
  add("set", po::value(&a.set)->composing(), "change a key of the config, as in section.key=value; may be repeated");
  add("tables", po::value(&a.tables), "plan the tables of this JSON file");
  add("scale", po::value(&a.scale), "compare these world sizes, such as 8,64,512");
  add("world-size", po::value(&a.world_size)->default_value(1), "number of ranks");
  add("nproc", po::value(&a.nproc), "the same as --world-size, as in tessera train");
  add("local-world-size", po::value(&a.local_world_size)->default_value(0),
      "ranks per host; 0: all on one, or 8 with --scale");
  add("compute-device", po::value(&a.compute_device),
      "cpu, cuda, hip, or the id of a device plugin (default: as job.device says, or cpu)");
  add("batch-size", po::value(&a.batch_size)->default_value(0), "samples per rank; 0: as the config says, or 512");
  add("torchrec-limits", po::bool_switch(&a.torchrec_limits),
      "offer only the shardings that TorchRec has for this "
      "device");
  add("search", po::value(&a.search), "search for the plan: balanced or torchrec");
  add("time-limit", po::value(&a.time_limit_s),
      "seconds to find a plan, or the reason why there is none; 0: no "
      "limit");
  add("hbm-gib", po::value(&a.hbm_gib)->multitoken(),
      "device memory per rank in GiB: 40, or a number for each rank, 40,40,80");
  add("ddr-gib", po::value(&a.ddr_gib)->multitoken(), "host memory per rank in GiB, in the same way");
  add("ssd-gib", po::value(&a.ssd_gib)->multitoken(), "disk per rank in GiB, in the same way");
  add("format", po::value(&a.format)->default_value("table"), "table, json, torchrec or tutorial");
  add("explain", po::value(&a.explain), "print the options of one table and their costs");
  add("cost-model", po::value(&a.cost_model), "default or torchrec (default: as the config says)");
  add("topology", po::value(&a.topology), "figures of the machine, from tessera calibrate");
  add("network", po::value(&a.network),
      "network between hosts: bandwidth of a host, as 100Gbit or 25Gbit,50us, or a topology file that has it");
  add("host-days", po::value(&a.host_days)->default_value(250), "days between two failures of a host, for --scale");
  add("disk-mb-s", po::value(&a.disk_mb_s)->default_value(500), "MB/s with which a host saves, for --scale");
  add("picture", po::value(&a.picture), "write the plan as a picture to this .html file");
  add("diff", po::value(&a.diff)->multitoken(), "print the differences between two plan files");
  const auto given = parse_options(args, options);
  if (!given) return std::nullopt;
  if (given->contains("nproc")) {
    if (!(*given)["world-size"].defaulted())
      throw UsageError(
          "--nproc and --world-size are the same number: give "
          "only one");
    a.world_size = a.nproc;
  }
  check_scale(a, *given);
  if (!a.model.empty() && a.config.empty())
    throw UsageError("--model gives a job other layers: it needs --config FILE");
  return a;
}

struct Job {
  std::vector<PlannerModule> modules;
  PlannerOptions options;
  std::unique_ptr<Runtime> runtime;
  DenseWork dense;                  // empty if unknown
  Config config;                    // set if the tables come from one
  std::vector<TableConfig> tables;  // the config's tables
};

Job job_from_tables(const Arguments& a) {
  const std::string text = read_file(a.tables);
  const config::JsonSource source{a.tables};
  const json root = config::parse_json(text, source);
  Job job;
  std::vector<EmbeddingBagConfig> tables;
  for (const config::JsonObject& table :
       root.is_object() ? config::JsonObject(root, source).objects("tables") : config::JsonObject::list(root, source)) {
    ParameterConstraints constraints;
    tables.push_back(table_from(table, constraints));
    job.options.constraints[tables.back().name] = std::move(constraints);
  }
  ModelTables split = split_by_pooling(validated(std::move(tables)));
  if (!split.pooled.empty() || split.sequences.empty()) job.modules.push_back({.tables = std::move(split.pooled)});
  if (!split.sequences.empty()) {
    job.modules.push_back({kSequencePath, PlannerModule::Kind::kEmbeddingCollection, std::move(split.sequences), 0});
  }
  const std::string device = a.compute_device.empty() ? "cpu" : a.compute_device;
  job.runtime = std::make_unique<Runtime>();
  job.options.topology = Topology::of(a.world_size, a.local_world_size, compute_device(*job.runtime, device));
  return job;
}

// Parses "40" or "40,80", or several such words.
std::vector<double> numbers_of(const char* option, const std::vector<std::string>& words) {
  std::vector<double> out;
  for (const std::string& word : words) {
    std::istringstream in(word);
    for (std::string text; std::getline(in, text, ',');) {
      std::istringstream number(text);
      double value = 0;
      if (!(number >> value) || !number.eof()) {
        throw UsageError(str_cat(option, " ", word,
                                 ": give one number of GiB for all ranks, such as 40, or one for each, such as "
                                 "40,40,80"));
      }
      out.push_back(value);
    }
  }
  return out;
}

JobData job_data(const Arguments& a, const Runtime& runtime, const Config& config) {
  if (!a.no_data) {
    try {
      return read_job_data(runtime, config);
    } catch (const Error& e) {
      if (e.code() != Code::kNotFound) throw;
      throw Error(e.code(), str_cat(e.what(), "; --no-data plans without reading it"));
    }
  }
  std::cerr << "--no-data: assumes pooling_factor or 1 ids per bag, equally popular rows, and no dense inputs;\n"
               "tessera train reads the data and may plan differently\n";
  try {
    JobData job{{}, tables_of(config, {})};
    (void)bounds_check_of(job.tables);
    return job;
  } catch (const Error& e) {
    throw Error(e.code(), str_cat(e.what(), "; leave --no-data out, or set rows in every [[table]]"));
  }
}

Job job_from_config(const Arguments& a) {
  const Config config = job_config(a.config, a.set, a.model);
  if (!config.planner.plan.empty())
    std::cerr << "planner.plan: tessera train uses " << config.planner.plan << "; this is a new plan\n";
  Job job{.config = config};
  job.runtime =
      std::make_unique<Runtime>(RuntimeOptions{.plugin_path = config.plugins.path, .require = config.plugins.require});
  const JobData read = job_data(a, *job.runtime, config);
  const Dataset& data = read.data;
  const std::vector<TableConfig>& tables = read.tables;
  const auto inputs = static_cast<int64_t>(data.dense.size());
  job.tables = tables;
  // tessera train and tessera serve look for the tables under these module names.
  const ModelTables split = split_by_pooling(embedding_configs(tables));
  job.modules.push_back({kCollectionPath, PlannerModule::Kind::kEmbeddingBagCollection, split.pooled, 0});
  if (!split.sequences.empty())
    job.modules.push_back({kSequencePath, PlannerModule::Kind::kEmbeddingCollection, split.sequences, 0});
  if (data.train || config.model.type != kGraphType) {  // without data, the widths of a graph's layers are unknown
    job.dense = dense_work(*job.runtime, config, tables, inputs);
    job.modules.push_back({"dense", PlannerModule::Kind::kDense, {}, job.dense.parameters() * 4});
  }
  const std::string device = !a.compute_device.empty()     ? a.compute_device
                             : config.job.device != "auto" ? config.job.device
                                                           : "cpu";
  job.options = planner_options(config, tables, a.world_size, a.local_world_size, compute_device(*job.runtime, device));
  const ProcessGroupOptions comm = group_options(config.comm, kCpu);
  job.options.wire = wire_bytes_of(*job.runtime, comm);
  job.options.joins = comm.joins();
  if (!data.train) return job;
  observe_job(config, read, &job.options);
  return job;
}

std::string sharding_text(const ParameterSharding& s) {
  std::string ranks;
  for (const int r : s.ranks()) ranks += str_cat(ranks.empty() ? "" : ",", r);
  std::string sizes;
  for (const ShardMetadata& shard : s.shards) sizes += str_cat(sizes.empty() ? "" : " ", shard.rows, "x", shard.cols);
  return str_cat(s.sharding_type, " ", s.compute_kernel, " on ranks ", ranks, " as ", sizes);
}

std::vector<std::string> modules_of(const ShardingPlan& a, const ShardingPlan& b) {
  std::vector<std::string> paths;
  for (const ShardingPlan* plan : {&a, &b}) {
    for (const auto& [path, tables] : plan->modules) {
      if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
    }
  }
  return paths;
}

EmbeddingModuleShardingPlan module_of(const ShardingPlan& plan, const std::string& path) {
  for (const auto& [known, tables] : plan.modules) {
    if (known == path) return tables;
  }
  return {};
}

// Lines "- what A has" and "+ what B has"; empty if the plans are equal.
std::string difference(const ShardingPlan& a, const ShardingPlan& b) {
  std::string out;
  const auto line = [&](char sign, const std::string& text) { out += str_cat(sign, " ", text, "\n"); };
  const auto world = [](const ShardingPlan& p) {
    return str_cat(p.world_size, " ranks, ", p.local_world_size, " per host, ", p.compute_device);
  };
  if (world(a) != world(b)) {
    line('-', world(a));
    line('+', world(b));
  }
  for (const std::string& path : modules_of(a, b)) {
    const EmbeddingModuleShardingPlan ours = module_of(a, path), theirs = module_of(b, path);
    const std::string prefix = path.empty() ? "" : path + ".";
    for (const auto& [name, sharding] : ours.tables()) {
      const bool same = theirs.contains(name) && theirs.at(name) == sharding;
      if (!same) line('-', str_cat(prefix, name, ": ", sharding_text(sharding)));
      if (!same && theirs.contains(name)) line('+', str_cat(prefix, name, ": ", sharding_text(theirs.at(name))));
    }
    for (const auto& [name, sharding] : theirs.tables()) {
      if (!ours.contains(name)) line('+', str_cat(prefix, name, ": ", sharding_text(sharding)));
    }
  }
  return out;
}

int diff(const std::vector<std::string>& files) {
  if (files.size() != 2) throw UsageError("--diff takes two plan files");
  const std::string text =
      difference(ShardingPlan::from_json(read_file(files[0])), ShardingPlan::from_json(read_file(files[1])));
  std::cout << (text.empty() ? "the plans are equal\n" : text);
  return text.empty() ? 0 : 1;
}

// Wraps the sentences of a report. Lines of tables, which are indented, stay as they are.
std::string fitted(const std::string& report) {
  std::string out;
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);)
    out += line.size() <= kColumns || line.starts_with(' ') ? line + '\n' : wrapped(line);
  return out;
}

using Printer = std::string (*)(const PlanResult&);

Printer printer_of(const std::string& format) {
  struct Format {
    const char* name;
    Printer print;
  };
  static constexpr Format kFormats[] = {
      {"table", [](const PlanResult& r) { return fitted(r.report()); }},
      {"json", [](const PlanResult& r) { return r.plan.json(); }},
      {"torchrec", [](const PlanResult& r) { return r.plan.str() + "\n"; }},
      {"tutorial",
       [](const PlanResult& r) {
         std::string out;
         for (const auto& [path, tables] : r.plan.modules) out += r.plan.tutorial(path) + "\n";
         return out;
       }},
  };
  for (const Format& f : kFormats) {
    if (format == f.name) return f.print;
  }
  throw UsageError("--format " + format + ": must be table, json, torchrec or tutorial");
}

// Loads the job, with the choices of `a` that do not depend on the number of ranks.
Job load_job(const Arguments& a) {
  Job job = a.config.empty() ? job_from_tables(a) : job_from_config(a);
  if (a.batch_size != 0) job.options.batch_size = a.batch_size;
  job.options.torchrec_limits = a.torchrec_limits;
  if (!a.search.empty()) job.options.search = planner_search_from(a.search);
  if (!std::isnan(a.time_limit_s)) job.options.time_limit_s = a.time_limit_s;
  job.options.topology.set_memory_gib(numbers_of("--hbm-gib", a.hbm_gib), numbers_of("--ddr-gib", a.ddr_gib),
                                      numbers_of("--ssd-gib", a.ssd_gib));
  if (!a.cost_model.empty()) job.options.cost_model = a.cost_model;
  if (!a.topology.empty()) job.options.machine = load_machine(a.topology);
  check_components(*job.runtime, job.config, job.tables, job.options.topology.compute_device);
  return job;
}

int scale_command(Arguments a) {
  constexpr int kRanksPerHost = 8;
  const int said = a.local_world_size > 0 ? a.local_world_size : kRanksPerHost;
  std::vector<int> worlds = world_sizes(a.scale, said);
  a.world_size = worlds.front();
  a.local_world_size = std::min(said, a.world_size);
  Job job = load_job(a);
  const bool configured = job.config.planner.local_world_size > 0;
  const int ranks_per_host = configured ? static_cast<int>(job.config.planner.local_world_size) : said;
  if (configured) worlds = world_sizes(a.scale, ranks_per_host);
  const Topology& topology = job.options.topology;
  for (const std::vector<int64_t>* caps : {&topology.hbm_caps, &topology.ddr_caps, &topology.ssd_caps}) {
    if (!caps->empty()) throw UsageError("--scale takes one size of memory for all ranks, not one for each");
  }
  if (!a.network.empty()) job.options.network = network_of(a.network, ranks_per_host);
  const ScaleJob scaled{.runtime = job.runtime.get(),
                        .modules = std::move(job.modules),
                        .options = std::move(job.options),
                        .dense = std::move(job.dense),
                        .ranks_per_host = ranks_per_host,
                        .host_days = a.host_days,
                        .disk_bytes_per_second = a.disk_mb_s * 1e6};
  const std::vector<ScaledWorld> found = scale(scaled, worlds);
  std::cout << (a.format == "json" ? scale_json(scaled, found) : scale_text(scaled, found));
  return std::any_of(found.begin(), found.end(), [](const ScaledWorld& w) { return w.has_plan(); }) ? 0 : 1;
}

}  // namespace

int plan_command(const std::vector<std::string>& args) {
  const std::optional<Arguments> given = parse(args);
  if (!given) return 0;
  const Arguments& a = *given;
  if (!a.diff.empty()) return diff(a.diff);
  if (a.config.empty() == a.tables.empty()) throw UsageError("give either --config or --tables");
  const Printer print = printer_of(a.format);
  check_outputs({{"--picture", a.picture}}, {{a.config, a.tables, a.topology}, {}});
  const PluginWatch watch;
  if (!a.scale.empty()) return scale_command(a);
  Job job = load_job(a);
  if (!a.network.empty()) job.options.network = network_of(a.network, job.options.topology.local_world_size);
  const PlanResult result = EmbeddingShardingPlanner(*job.runtime, job.options).plan(job.modules);
  if (!a.picture.empty()) write_picture(a.picture, result);
  std::cout << (a.explain.empty() ? print(result) : fitted(result.explain(a.explain)));
  return 0;
}

}  // namespace tessera::cli
