// tessera bench NAME: finds the bench.
#include <iostream>

#include "bench/session.h"

namespace tessera::cli {
namespace {

constexpr BenchEntry kBenches[] = {
    {"lookup", "lookup kernels: forward and training, against the machine's gather limit", bench_lookup},
    {"infer", "a quantized collection: batch in, pooled rows out", bench_infer},
    {"collective", "transports: time of one operation over its size", bench_collective},
    {"step", "forward and backward of a sharded EmbeddingBagCollection", bench_step},
    {"predict", "the planner's step times beside measured ones", bench_predict},
    {"train", "whole DLRM training steps on synthetic data", bench_train},
    {"start", "tessera train from the start of the process to the end of its first step", bench_start},
    {"plan", "time of a plan for many tables and ranks, and how even it is", bench_plan},
};

}  // namespace

int bench_command(const std::vector<std::string>& args) {
  const std::string name = args.empty() ? "" : args[0];
  if (name == "run") return run_workload_file(kBenches, {args.begin() + 1, args.end()});
  if (name == "show") return show_result({args.begin() + 1, args.end()});
  for (const BenchEntry& bench : kBenches) {
    if (name == bench.name) return run_session(bench, {args.begin() + 1, args.end()});
  }
  const bool help = name == "--help" || name == "-h";
  if (!help && !name.empty())
    throw UsageError("unknown bench \"" + name +
                     "\": lookup, infer, collective, step, predict, train, start or plan; or run, "
                     "show");
  std::ostream& out = help ? std::cout : std::cerr;
  out << "usage: tessera bench NAME [OPTIONS]\n\n";
  for (const BenchEntry& bench : kBenches) out << "  " << bench.name << "\t" << bench.summary << '\n';
  out << "\n  run FILE\tthe workloads of a file, with the bench that it is for\n"
         "  show FILE\twhat --json has printed, with its bars, and other programs' figures beside it\n";
  out << "\ntessera bench NAME --help lists a bench's options.\n";
  return help ? 0 : 2;
}

}  // namespace tessera::cli
