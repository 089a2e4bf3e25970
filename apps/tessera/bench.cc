// tessera bench NAME: finds the bench and runs it.
#include "bench/session.h"

namespace tessera::cli {
namespace {

constexpr BenchEntry kBenches[] = {
    {"lookup", "lookup kernels, compared with the machine's gather limit", bench_lookup},
    {"infer", "a quantized collection: batch in, pooled rows out", bench_infer},
    {"collective", "transports: time of one operation over its size", bench_collective},
    {"step", "forward and backward of a sharded EmbeddingBagCollection", bench_step},
    {"moves", "rows moved between messages and output, on threads", bench_moves},
    {"search", "search for the best items, compared with reading all of them", bench_search},
    {"predict", "the planner's step times, compared with measured ones", bench_predict},
    {"train", "whole DLRM training steps on synthetic data", bench_train},
    {"start", "tessera train, from process start to the end of the first step", bench_start},
    {"read", "a job's data, from its files to batches", bench_read},
    {"save", "checkpoints written during training and without it", bench_save},
    {"plan", "time to plan many tables and ranks, and the balance of the plan", bench_plan},
    {"scale", "how the time of another bench grows with one of its options", bench_scale},
};

}  // namespace

std::span<const BenchEntry> benches() { return kBenches; }

int bench_command(const std::vector<std::string>& args) {
  CommandGroup group{"tessera bench", {}};
  for (const BenchEntry& bench : benches()) {
    group.commands.push_back({bench.name, bench.summary,
                              [&bench](const std::vector<std::string>& rest) { return run_session(bench, rest); }});
  }
  group.commands.push_back({"run", "run the workloads of a file with their bench", run_workload_file});
  group.commands.push_back({"show", "show what --json has printed, next to other programs", show_result});
  return group.run(args);
}

}  // namespace tessera::cli
