#include "plan/scale.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "command.h"
#include "formatted.h"
#include "options.h"
#include "wrapped.h"

namespace tessera::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr double kMs = 1e3, kMib = 1048576, kGib = 1073741824, kDay = 86400;
constexpr double kDelay = 20e-6;           // of a network whose delay nobody states
constexpr double kMessageSeconds = 6e-6;   // of a rank that sends one message over TCP and receives one (docs/scale.md)
constexpr double kPayload = 1448. / 1538;  // share of a link's bits that is left by TCP's and Ethernet's headers
constexpr double kPays = 0.5;  // ranks pay if they add at least this part of what they would add without exchanges

PlannerOptions options_of(const ScaleJob& job, int ranks, int64_t batch) {
  PlannerOptions out = job.options;
  const int shared_by = out.topology.local_world_size;
  out.topology.world_size = ranks;
  out.topology.local_world_size = std::min(ranks, job.ranks_per_host);
  // The ranks of a host share what this machine has. What the caller states is for each rank.
  if (!out.topology.ddr_note.empty())
    out.topology.ddr_cap = out.topology.ddr_cap * shared_by / out.topology.local_world_size;
  if (!out.topology.ssd_note.empty())
    out.topology.ssd_cap = out.topology.ssd_cap * shared_by / out.topology.local_world_size;
  out.batch_size = batch;
  return out;
}

ScaledStep step_of(const ScaleJob& job, int ranks, int64_t batch, int64_t* busiest_bytes) {
  ScaledStep out{.batch = batch};
  const PlannerOptions options = options_of(job, ranks, batch);
  try {
    const PlanResult planned = EmbeddingShardingPlanner(*job.runtime, options).plan(job.modules);
    if (busiest_bytes != nullptr) {
      for (const Storage& s : planned.rank_storage) *busiest_bytes = std::max(*busiest_bytes, s.hbm + s.ddr + s.ssd);
    }
    out.step = predict_step(*job.runtime, options, job.modules, planned.plan, job.dense);
  } catch (const PlannerError& e) {
    if (e.kind() == PlannerError::Kind::kBadInput) throw;
    out.none = e.what();
  }
  return out;
}

// Bytes of all tables with their optimizers' states as float32, and the dense part with two of its own.
double saved_bytes(const ScaleJob& job) {
  double bytes = 12.0 * static_cast<double>(job.dense.parameters());
  for (const PlannerModule& module : job.modules) {
    for (const EmbeddingBagConfig& table : module.tables)
      bytes += 4.0 * static_cast<double>(table.num_embeddings) * static_cast<double>(table.embedding_dim + 1);
  }
  return bytes;
}

// The largest world from which on another step in the list brings less than kPays of what its ranks would bring.
const ScaledWorld* largest_that_pays(const std::vector<ScaledWorld>& worlds, ScaledStep ScaledWorld::*which) {
  const ScaledWorld* last = nullptr;
  for (const ScaledWorld& w : worlds) {
    if (!(w.*which).none.empty()) continue;
    if (last != nullptr) {
      const double before = (last->*which).samples_per_second(last->ranks);
      const double gain = (w.*which).samples_per_second(w.ranks) - before;
      if (gain < kPays * before * (w.ranks - last->ranks) / last->ranks) break;
    }
    last = &w;
  }
  return last;
}

std::string steps_text(const std::vector<ScaledWorld>& worlds, ScaledStep ScaledWorld::*which) {
  std::string out = formatted("%7s %10s %9s %8s %8s %8s %8s %9s %5s\n", "ranks", "batch/rank", "step ms", "work",
                              "busiest", "in host", "across", "samples/s", "eff");
  double base = 0;  // samples per second and rank
  for (const ScaledWorld& w : worlds) {
    const ScaledStep& s = w.*which;
    if (!s.none.empty()) {
      out += wrapped(str_cat("no plan: ", s.none), formatted("%7d ", w.ranks), "        ");
      continue;
    }
    const double rate = s.samples_per_second(w.ranks);
    if (base == 0) base = rate / w.ranks;
    out += formatted("%7d %10lld %9.3f %8.3f %8.3f %8.3f %8.3f %9.0f %4.0f%%\n", w.ranks,
                     static_cast<long long>(s.batch), kMs * s.step.seconds, kMs * s.work(),
                     kMs * (s.step.imbalance + s.step.waiting), kMs * (s.step.exchanges - s.step.across_hosts),
                     kMs * s.step.across_hosts, rate, 100 * rate / w.ranks / base);
  }
  if (const ScaledWorld* last = largest_that_pays(worlds, which); last != nullptr && worlds.size() > 1) {
    // Larger worlds may have no plan.
    const bool all = std::all_of(worlds.begin(), worlds.end(), [&](const ScaledWorld& w) {
      return w.ranks <= last->ranks || !(w.*which).none.empty();
    });
    out += all ? str_cat("Each world that has a plan pays.\n")
               : wrapped(str_cat("Pays up to ", last->ranks,
                                 " ranks: beyond, added ranks bring less than half of what they "
                                 "would bring without exchanges."));
  }
  return out;
}

std::string duration(double seconds) {
  return seconds < 120    ? formatted("%.3g s", seconds)
         : seconds < 7200 ? formatted("%.3g min", seconds / 60)
                          : formatted("%.3g h", seconds / 3600);
}

json step_json(const ScaledStep& s, int ranks) {
  if (!s.none.empty()) return {{"batch_per_rank", s.batch}, {"no_plan", s.none}};
  return {{"batch_per_rank", s.batch},
          {"step_s", s.step.seconds},
          {"work_s", s.work()},
          {"busiest_rank_s", s.step.imbalance + s.step.waiting},
          {"exchange_in_host_s", s.step.exchanges - s.step.across_hosts},
          {"exchange_across_hosts_s", s.step.across_hosts},
          {"bytes_across_hosts_per_rank", s.step.bytes_across_hosts},
          {"samples_per_s", s.samples_per_second(ranks)}};
}

}  // namespace

std::vector<int> world_sizes(const std::string& text, int ranks_per_host) {
  constexpr int kLargest = 65536;
  const auto refuse = [&](const std::string& why) {
    throw UsageError(str_cat("--scale ", text, ": ", why, "; give ascending numbers of ranks, such as 8,64,512"));
  };
  std::vector<int> out;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    std::istringstream number(word);
    int ranks = 0;
    if (!(number >> ranks) || !number.eof() || ranks < 1 || ranks > kLargest)
      refuse(str_cat('"', word, "\" is no number from 1 to ", kLargest));
    if (!out.empty() && ranks <= out.back()) refuse(str_cat(ranks, " does not exceed ", out.back()));
    if (ranks > ranks_per_host && ranks % ranks_per_host != 0)
      refuse(str_cat(ranks, " is no multiple of ", ranks_per_host, ", the ranks of a host (--local-world-size)"));
    out.push_back(ranks);
  }
  if (out.empty()) refuse("there is no number");
  return out;
}

LinkFigures network_of(const std::string& text, int ranks_per_host) {
  const size_t unit = text.find("bit");
  double speed = 0;
  char prefix = 0;
  std::istringstream in(text);
  const auto refuse = [&] {
    throw UsageError(str_cat("--network ", text,
                             ": give the bandwidth of a host and, if known, the delay of a message, such as 100Gbit or "
                             "25Gbit,50us, or a topology file"));
  };
  if (unit == std::string::npos || !(in >> speed)) {
    if (std::error_code unknown; !std::filesystem::exists(text, unknown)) refuse();
    const Machine machine = load_machine(text);
    if (!machine.inter_host)
      throw UsageError(
          str_cat("--network ", text, ": the file has no figures of exchanges between hosts (inter_host)"));
    return *machine.inter_host;
  }
  std::string bit;
  if (!(in >> prefix) || (prefix != 'G' && prefix != 'M') || !std::getline(in, bit, ',') || bit != "bit") refuse();
  double delay = kDelay;
  if (std::string word; std::getline(in, word)) {
    std::istringstream stated(word);
    std::string of;
    if (!(stated >> delay >> of) || !stated.eof() || (of != "us" && of != "ms")) refuse();
    delay *= of == "us" ? 1e-6 : 1e-3;
  }
  if (!(speed > 0) || !(delay > 0)) refuse();
  return LinkFigures::of_network(kPayload * speed * (prefix == 'G' ? 1e9 : 1e6) / 8 / ranks_per_host, delay,
                                 kMessageSeconds);
}

std::vector<ScaledWorld> scale(const ScaleJob& job, const std::vector<int>& worlds) {
  const int64_t batch = job.options.batch_size, total = batch * worlds.front();
  const double bytes = saved_bytes(job);
  std::vector<ScaledWorld> out;
  for (const int ranks : worlds) {
    ScaledWorld& w = out.emplace_back();
    w.ranks = ranks;
    w.hosts = std::max(1, ranks / job.ranks_per_host);
    w.weak = step_of(job, ranks, batch, &w.busiest_bytes);
    const int64_t share = std::max<int64_t>(1, (total + ranks - 1) / ranks);
    w.strong = share == batch ? w.weak : step_of(job, ranks, share, nullptr);
    // J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", 2006, first order.
    w.save_seconds = bytes / w.hosts / job.disk_bytes_per_second;
    const double between_failures = job.host_days * kDay / w.hosts;
    w.save_every_seconds = std::max(w.save_seconds, std::sqrt(2 * w.save_seconds * between_failures) - w.save_seconds);
  }
  return out;
}

std::string scale_text(const ScaleJob& job, const std::vector<ScaledWorld>& worlds) {
  std::string out = wrapped(str_cat(
      "Predicted, not measured: ", job.ranks_per_host, job.ranks_per_host == 1 ? " rank" : " ranks",
      " per host. A step is work (the mean of all ranks), waiting "
      "for the busiest rank, and exchanges in and across hosts, in ms; eff is the rate per rank relative to the first "
      "line."));
  out += "\nThe same batch per rank:\n" + steps_text(worlds, &ScaledWorld::weak);
  out += "\nThe same batch in all:\n" + steps_text(worlds, &ScaledWorld::strong);
  if (std::none_of(worlds.begin(), worlds.end(), [](const ScaledWorld& w) { return w.weak.none.empty(); })) return out;
  out += "\nThe same batch per rank, memory and saves:\n";
  out += formatted("%7s %7s %19s %22s %9s %10s\n", "ranks", "hosts", "GiB on busiest rank", "MiB across hosts/step",
                   "save", "save every");
  for (const ScaledWorld& w : worlds) {
    if (!w.weak.none.empty()) continue;
    out += formatted("%7d %7d %19.3g %22.3g %9s %10s\n", w.ranks, w.hosts, static_cast<double>(w.busiest_bytes) / kGib,
                     w.weak.step.bytes_across_hosts / kMib, duration(w.save_seconds).c_str(),
                     duration(w.save_every_seconds).c_str());
  }
  return out +
         wrapped(str_cat("MiB across hosts: what the rank that sends most sends. Saves: each host writes its part "
                         "with ",
                         job.disk_bytes_per_second / 1e6, " MB/s (--disk-mb-s) and fails once in ", job.host_days,
                         " days (--host-days); the interval is Daly's."));
}

std::string scale_json(const ScaleJob& job, const std::vector<ScaledWorld>& worlds) {
  json out{{"ranks_per_host", job.ranks_per_host},
           {"host_days", job.host_days},
           {"disk_mb_s", job.disk_bytes_per_second / 1e6},
           {"worlds", json::array()}};
  for (const ScaledWorld& w : worlds) {
    json line{{"ranks", w.ranks}, {"hosts", w.hosts}};
    line["same_batch_per_rank"] = step_json(w.weak, w.ranks);
    line["same_batch_in_all"] = step_json(w.strong, w.ranks);
    line["busiest_rank_bytes"] = w.busiest_bytes;
    line["save_s"] = w.save_seconds;
    line["save_every_s"] = w.save_every_seconds;
    out["worlds"].push_back(std::move(line));
  }
  for (const auto& [key, which] : {std::pair("pays_up_to_same_batch_per_rank", &ScaledWorld::weak),
                                   std::pair("pays_up_to_same_batch_in_all", &ScaledWorld::strong)}) {
    const ScaledWorld* last = largest_that_pays(worlds, which);
    out[key] = last == nullptr ? json() : json(last->ranks);
  }
  return out.dump(2) + "\n";
}

}  // namespace tessera::cli
