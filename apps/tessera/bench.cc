// tessera bench NAME: finds the bench and runs it.
#include "bench/session.h"

namespace tessera::cli {
namespace {

constexpr BenchEntry kBenches[] = {
    {"lookup", "lookup kernels: forward and training, against the machine's gather limit", bench_lookup},
    {"infer", "a quantized collection: batch in, pooled rows out", bench_infer},
    {"collective", "transports: time of one operation over its size", bench_collective},
    {"step", "forward and backward of a sharded EmbeddingBagCollection", bench_step},
    {"moves", "rows between the wire and the output in one process, on threads", bench_moves},
    {"search", "the best items among many, beside reading their vectors", bench_search},
    {"predict", "the planner's step times beside measured ones", bench_predict},
    {"train", "whole DLRM training steps on synthetic data", bench_train},
    {"start", "tessera train from the start of the process to the end of its first step", bench_start},
    {"read", "a job's data, from its files to batches", bench_read},
    {"save", "checkpoints beside training and apart from it, against memory and disk", bench_save},
    {"plan", "time of a plan for many tables and ranks, and how even it is", bench_plan},
};

}  // namespace

int bench_command(const std::vector<std::string>& args) {
  CommandGroup group{"tessera bench", {}};
  for (const BenchEntry& bench : kBenches) {
    group.commands.push_back({bench.name, bench.summary,
                              [&bench](const std::vector<std::string>& rest) { return run_session(bench, rest); }});
  }
  group.commands.push_back({"run", "the workloads of a file, with the bench that it is for",
                            [](const std::vector<std::string>& rest) { return run_workload_file(kBenches, rest); }});
  group.commands.push_back(
      {"show", "what --json has printed, with its bars, and other programs' figures beside it", show_result});
  return group.run(args);
}

}  // namespace tessera::cli
