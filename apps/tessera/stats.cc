// tessera stats: what a job's data asks of each table: number of rows, how often popular ones occur, ids per bag.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "command.h"
#include "options.h"
#include "outputs.h"
#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/planner.h"
#include "tessera/train_job.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

struct StatsArguments {
  std::string config, table, hot;
  std::vector<std::string> set;
  int64_t samples = 0, hot_rows = 0;
  bool as_json = false;
};

bool parse_stats_arguments(const std::vector<std::string>& args, StatsArguments* a) {
  Options options("stats", "--config FILE [OPTIONS]",
                  "Reads the training part of a job's data. Prints for each table how many of its rows are looked "
                  "up, which share of the lookups goes to the most popular rows, and how many ids a bag has.");
  auto add = options.add_options();
  add("config", po::value(&a->config)->value_name("FILE"), "the job");
  add("set", po::value(&a->set)->composing()->value_name("KEY=VALUE"), "change a key of the config; may be repeated");
  add("table", po::value(&a->table)->value_name("NAME"), "print only this table");
  add("samples", po::value(&a->samples)->value_name("N")->default_value(0), "number of samples to read; 0: all");
  add("hot", po::value(&a->hot)->value_name("FILE"), "write the most popular rows, for the sharder hot_rows");
  add("hot-rows", po::value(&a->hot_rows)->value_name("N")->default_value(256),
      "number of rows of each table for --hot");
  add("json", po::bool_switch(&a->as_json), "print one JSON object");
  if (!parse_options(args, options)) return false;
  if (a->config.empty()) throw UsageError("--config is needed: the job whose data is looked at");
  if (a->samples < 0 || a->hot_rows < 1) throw UsageError("--samples and --hot-rows are numbers above 0");
  return true;
}

// Usage of one table by all its features together.
struct TableUsage {
  std::vector<uint32_t> visits;  // per row
  std::vector<int64_t> lengths;  // number of bags, by number of ids
  int64_t outside = 0;           // ids that are not rows
  int64_t bags() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
};

template <class Number>
std::span<const Number> of_key(const Tensor& values, int64_t begin, int64_t count) {
  return {values.data<Number>() + begin, static_cast<size_t>(count)};
}

template <class Id>
void count_ids(std::span<const Id> ids, TableUsage* usage) {
  for (const Id id : ids) {
    if (id < 0 || static_cast<uint64_t>(id) >= usage->visits.size())
      ++usage->outside;
    else
      ++usage->visits[static_cast<size_t>(id)];
  }
}

template <class Length>
void count_lengths(std::span<const Length> lengths, TableUsage* usage) {
  for (const Length n : lengths) {
    if (static_cast<size_t>(n) >= usage->lengths.size()) usage->lengths.resize(static_cast<size_t>(n) + 1);
    ++usage->lengths[static_cast<size_t>(n)];
  }
}

void count_feature(const KeyedJaggedTensor& sparse, size_t key, int64_t samples, TableUsage* usage) {
  const int64_t begin = sparse.offset_per_key()[key], ids = sparse.length_per_key()[key];
  const int64_t first = static_cast<int64_t>(key) * samples;
  if (sparse.values().dtype() == DType::kInt32)
    count_ids(of_key<int32_t>(sparse.values(), begin, ids), usage);
  else
    count_ids(of_key<int64_t>(sparse.values(), begin, ids), usage);
  if (sparse.lengths().dtype() == DType::kInt32)
    count_lengths(of_key<int32_t>(sparse.lengths(), first, samples), usage);
  else
    count_lengths(of_key<int64_t>(sparse.lengths(), first, samples), usage);
}

std::vector<TableUsage> count_all(const JobData& job, int64_t most) {
  std::vector<TableUsage> out(job.tables.size());
  for (size_t t = 0; t < out.size(); ++t) out[t].visits.resize(static_cast<size_t>(job.tables[t].rows));
  BatchReader reader(job.data.train, {1024, 0, 1, 1, false});
  int64_t seen = 0;
  for (Batch batch; (most == 0 || seen < most) && reader.next(batch); seen += batch.labels.numel()) {
    const auto& keys = batch.sparse.keys();
    for (size_t t = 0; t < out.size(); ++t) {
      for (const std::string& feature : job.tables[t].features) {
        const auto key = std::find(keys.begin(), keys.end(), feature);
        if (key != keys.end())
          count_feature(batch.sparse, static_cast<size_t>(key - keys.begin()), batch.labels.numel(), &out[t]);
      }
    }
  }
  return out;
}

// Rows by descending popularity, equally popular ones by number; unvisited rows are left out.
std::vector<int64_t> by_popularity(const TableUsage& usage) {
  std::vector<int64_t> rows;
  for (size_t row = 0; row < usage.visits.size(); ++row) {
    if (usage.visits[row] > 0) rows.push_back(static_cast<int64_t>(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [&](int64_t a, int64_t b) {
    return usage.visits[static_cast<size_t>(a)] > usage.visits[static_cast<size_t>(b)];
  });
  return rows;
}

// The length that the fraction `part` of all bags does not exceed.
int64_t length_at(const TableUsage& usage, double part) {
  const double wanted = part * static_cast<double>(usage.bags());
  double seen = 0;
  for (size_t n = 0; n < usage.lengths.size(); ++n) {
    seen += static_cast<double>(usage.lengths[n]);
    if (seen >= wanted) return static_cast<int64_t>(n);
  }
  return 0;
}

json describe_usage(const TableConfig& table, const TableUsage& usage, const std::vector<int64_t>& popular) {
  int64_t ids = 0;
  for (const uint32_t n : usage.visits) ids += n;
  const auto share = [&](size_t rows) {
    double visits = 0;
    for (size_t i = 0; i < std::min(rows, popular.size()); ++i) visits += usage.visits[static_cast<size_t>(popular[i])];
    return ids > 0 ? visits / static_cast<double>(ids) : 0;
  };
  const auto part_of_rows = [&](double part) {
    return static_cast<size_t>(std::max(1.0, std::round(part * static_cast<double>(table.rows))));
  };
  const int64_t bags = usage.bags();
  json out{{"table", table.name}, {"features", table.features}, {"rows", table.rows}};
  out["distinct"] = popular.size();
  out["ids"] = ids;
  out["ids_outside"] = usage.outside;
  out["zipf_exponent"] = zipf_exponent_of(table.rows, static_cast<double>(ids), static_cast<double>(popular.size()));
  out["share_of_lookups"] = {{"top_1", share(1)},
                             {"top_10", share(10)},
                             {"top_0.1%", share(part_of_rows(0.001))},
                             {"top_1%", share(part_of_rows(0.01))},
                             {"top_10%", share(part_of_rows(0.1))}};
  out["bags"] = bags;
  out["ids_per_bag"] = {{"mean", bags > 0 ? static_cast<double>(ids + usage.outside) / static_cast<double>(bags) : 0},
                        {"p50", length_at(usage, 0.5)},
                        {"p99", length_at(usage, 0.99)},
                        {"max", usage.lengths.empty() ? 0 : static_cast<int64_t>(usage.lengths.size()) - 1},
                        {"empty", bags > 0 ? static_cast<double>(usage.lengths[0]) / static_cast<double>(bags) : 0}};
  return out;
}

void print_usage(const json& tables) {
  size_t widest = 5;
  for (const json& t : tables) widest = std::max(widest, t["table"].get<std::string>().size());
  const int name = static_cast<int>(widest);
  std::printf("%-*s %12s %12s %14s %6s %7s %7s %7s %8s %6s %6s %7s\n", name, "table", "rows", "distinct", "ids", "zipf",
              "top 1", "top 10", "top 1%", "ids/bag", "p99", "max", "empty");
  for (const json& t : tables) {
    const json &share = t["share_of_lookups"], &bag = t["ids_per_bag"];
    const auto percent = [](const json& part) { return 100 * part.get<double>(); };
    std::printf("%-*s %12lld %12lld %14lld %6.2f %6.1f%% %6.1f%% %6.1f%% %8.2f %6lld %6lld %6.1f%%\n", name,
                t["table"].get<std::string>().c_str(), t["rows"].get<long long>(), t["distinct"].get<long long>(),
                t["ids"].get<long long>(), t["zipf_exponent"].get<double>(), percent(share["top_1"]),
                percent(share["top_10"]), percent(share["top_1%"]), bag["mean"].get<double>(),
                bag["p99"].get<long long>(), bag["max"].get<long long>(), percent(bag["empty"]));
  }
}

}  // namespace

int stats_command(const std::vector<std::string>& args) {
  StatsArguments a;
  if (!parse_stats_arguments(args, &a)) return 0;
  const Config config = load_config(a.config, a.set);
  check_outputs({{"--hot", a.hot}}, {.files = {a.config, config.data.path, config.data.test_path}, .folders = {}});
  const Runtime runtime({config.plugins.path, config.plugins.require});
  const JobData job = read_job_data(runtime, config);
  const auto wanted = [&](const TableConfig& table) { return a.table.empty() || table.name == a.table; };
  if (std::none_of(job.tables.begin(), job.tables.end(), wanted))
    fail(Code::kNotFound, "the job has no table \"", a.table, "\"");
  const std::vector<TableUsage> usage = count_all(job, a.samples);
  json tables = json::array();
  std::string hot;
  for (size_t t = 0; t < usage.size(); ++t) {
    if (!wanted(job.tables[t])) continue;
    const std::vector<int64_t> popular = by_popularity(usage[t]);
    tables.push_back(describe_usage(job.tables[t], usage[t], popular));
    hot += job.tables[t].name;
    for (size_t i = 0; i < std::min(popular.size(), static_cast<size_t>(a.hot_rows)); ++i)
      hot += str_cat(" ", popular[i]);
    hot += '\n';
  }
  if (!a.hot.empty() && !(std::ofstream(a.hot) << hot << std::flush))
    fail(Code::kUnavailable, "cannot write to ", a.hot);
  if (a.as_json)
    std::cout << json{{"data", job.data.name}, {"tables", tables}}.dump(1) << '\n';
  else
    print_usage(tables);
  return 0;
}

}  // namespace tessera::cli
