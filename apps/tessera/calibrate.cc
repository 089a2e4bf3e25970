// tessera calibrate: measures what the parts of a step cost on this machine, for the planner's topology file.
#include "calibrate/calibrate.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <thread>

#include "bench/report/circumstances.h"
#include "command.h"
#include "options.h"
#include "page/page_file.h"
#include "spawn.h"
#include "tessera/process_group.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

constexpr double kDeadline = 300;

// Returns false if help was printed.
bool parse_arguments(const std::vector<std::string>& args, CalibrateOptions* o) {
  Options options(
      "calibrate", "[OPTIONS]",
      "Measures lookups, updates, exchanges and dense layers on this machine and prints the figures. --save writes "
      "them to the topology file that planner.topology names (docs/calibration.md).");
  auto add = options.add_options();
  add("save", po::value(&o->save)->value_name("FILE"), "write the topology file");
  add("kernel", po::value(&o->kernel)->default_value(o->kernel), "kernel plugin");
  add("backend", po::value(&o->backend)->default_value(o->backend), "collective plugin");
  add("nproc,n", po::value(&o->nproc)->value_name("RANKS"),
      "number of ranks to start, as many as the job has per host (default: number of cores, at most 2)");
  add("threads", po::value(&o->threads)->default_value(o->threads), "threads of each rank");
  add("quick", po::bool_switch(&o->quick), "measure fewer sizes and samples: a few seconds, rougher figures");
  const auto found = parse_options(args, options);
  if (!found) return false;
  if (found->count("nproc") && (o->nproc < 1 || o->nproc > 1024)) throw UsageError("-n takes 1 to 1024 ranks");
  if (o->threads < 1) throw UsageError("--threads must be at least 1");
  if (!o->save.empty()) check_writable(o->save, "--save");
  return true;
}

std::string measure(const CalibrateOptions& o, const RankEnvironment& where) {
  const Runtime runtime({{}, {}, true, o.threads});
  const auto group = ProcessGroup::connect(runtime, where, {o.backend, "{}", kDeadline});
  const auto say = [&](const std::string& part) {
    if (group->rank() == 0) std::fprintf(stderr, "calibrate: %s\n", part.c_str());
  };
  return calibrate(runtime, group, {o.kernel, o.quick, say}).json();
}

void print_link(const char* name, const std::optional<LinkFigures>& link) {
  if (!link) return;
  std::printf("\n%s (%s, %d ranks)\n  %10s %16s %16s\n", name, link->backend.c_str(), link->ranks, "bytes",
              "all-to-all us", "all-reduce us");
  for (const double bytes : {64.0, 4096.0, 65536.0, 1048576.0}) {
    std::printf("  %10.0f %16.1f %16.1f\n", bytes, 1e6 * link->all_to_all.at(bytes), 1e6 * link->all_reduce.at(bytes));
  }
}

template <StageWork Work>
void print_stage(const char* name, const StageFigures<Work>& s) {
  std::printf("  %-10s", name);
  for (const auto& unit : Work::units()) std::printf("  %s %.3g", unit.key, 1e9 * (s.seconds.*unit.count));
  std::printf("\n");
}

void print_machine(const Machine& m) {
  std::printf("%s, %d rank(s) with %d thread(s)\n", m.name.c_str(), m.ranks, m.threads);
  for (const KernelFigures& k : m.kernels) {
    std::printf("\nkernel %s: ns per id, by row and by table\n  %9s %10s %8s %8s %8s %8s %8s\n", k.kernel.c_str(),
                "row bytes", "table KiB", "lookup", "GB/s", "update", "repeat", "bag");
    for (const tsr_row_cost& r : k.rows) {
      std::printf("  %9.0f %10.0f %8.1f %8.1f %8.1f %8.1f %8.1f\n", r.row_bytes, r.reuse_bytes / 1024, 1e9 * r.lookup,
                  r.row_bytes / r.lookup / 1e9, 1e9 * r.update, 1e9 * r.repeat, 1e9 * (r.bag_forward + r.bag_backward));
    }
    std::printf("  a call: %.0f + %.0f ns, a run of bags: %.0f + %.0f ns\n", 1e9 * k.call_forward,
                1e9 * k.call_backward, 1e9 * k.run_forward, 1e9 * k.run_backward);
  }
  print_link("inside the host", m.intra_host);
  print_link("across hosts", m.inter_host);
  std::printf("\naround the exchanges, ns for each\n");
  print_stage("route", m.route);
  print_stage("unpack", m.unpack);
  print_stage("combine", m.combine);
  print_stage("split", m.split);
  print_stage("replica", m.data_parallel);
  std::printf("\ndense layers: %.0f us forward, %.0f us backward for 10 Mflop; update %.2f ns per parameter\n",
              1e6 * m.dense.layer_forward.at(1e7), 1e6 * m.dense.layer_backward.at(1e7),
              4e9 * m.dense.update.seconds.bytes);
}

}  // namespace

Machine calibrated(const CalibrateOptions& o) {
  const auto measure_once = [&]() -> Calibration {
    const Noise noise;
    const std::string text =
        run_in_ranks(o.nproc, o.nproc, kDeadline, [&](const RankEnvironment& where) { return measure(o, where); })[0];
    return {Machine::from_json(text, "the measured figures"), noise.share()};
  };
  return settled(measure_once, [](const std::string& line) { std::fprintf(stderr, "calibrate: %s\n", line.c_str()); });
}

// Measures as this rank under a launcher. The other ranks cannot be told from other programs, so noise is not judged.
Machine calibrated_here(const CalibrateOptions& o, const RankEnvironment& here) {
  Machine machine = Machine::from_json(measure(o, here), "the measured figures");
  const std::string wrong = impossible_figure(machine);
  if (!wrong.empty()) {
    fail(Code::kUnavailable, "calibrate: the result has ", wrong,
         ", which happens if other programs use the processors: nothing is saved; run it again when the machines "
         "are idle");
  }
  return machine;
}

int calibrate_command(const std::vector<std::string>& args) {
  CalibrateOptions o;
  if (!parse_arguments(args, &o)) return 0;
  const RankEnvironment here = RankEnvironment::from_environment();
  const bool launched = here.source != "single";
  if (o.nproc > 0 && launched && o.nproc != here.world_size) {
    throw UsageError(str_cat("-n ", o.nproc, ", but ", here.source, " has started ", here.world_size,
                             " rank(s): leave -n out under a launcher"));
  }
  if (o.nproc == 0) o.nproc = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 2);
  const Machine machine = launched ? calibrated_here(o, here) : calibrated(o);
  if (here.rank != 0) return 0;
  print_machine(machine);
  if (o.save.empty()) return 0;
  std::ofstream out(o.save);
  out << machine.json();
  out.close();
  if (!out) fail(Code::kUnavailable, "cannot write ", o.save);
  std::printf("\nsaved to %s\n", o.save.c_str());
  return 0;
}

}  // namespace tessera::cli
