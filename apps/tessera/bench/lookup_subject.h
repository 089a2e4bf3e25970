// The subjects that `bench lookup` times: kernels, the gather limit, and copies.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/lookup_workload.h"
#include "tessera/runtime.h"

namespace tessera::cli {

enum class LookupPass { kForward, kTrain, kLimit, kCopy };
// "forward", "train", "limit" or "copy"; throws UsageError otherwise
LookupPass lookup_pass_from(const std::string& name);
const char* to_string(LookupPass pass);

// One way to do a batch. A kernel has one way; the limit has one for each prefetch distance and hint, and its fastest
// counts.
struct LookupWay {
  std::function<void(size_t batch)> run;
  std::function<void()> wait;   // waits for work enqueued on a device; empty if a run is done when it returns
  int ahead = 0;                // prefetch distance in rows
  const char* hint = "none";    // prefetch hint
  int calls = 1;                // calls timed together
  size_t next = 0;              // index of the next batch, modulo their number
  std::vector<double> samples;  // microseconds per call
  std::vector<double> rounds;   // median of each round

  void forget() {
    samples.clear();
    rounds.clear();
  }
};

// The subject of one result line.
struct LookupSubject {
  std::string kernel, optimizer = "none";
  LookupPass pass = LookupPass::kForward;
  bool verified = false;        // true if compared with the reference kernel before anything is timed
  double bytes = 0;             // bytes of rows that a batch moves
  double moved = 0;             // `bytes` plus those of optimizer states
  std::vector<LookupWay> ways;  // never empty
};

// Holds the answers of the kernel "reference" for the first batches and compares another kernel with them. It keeps
// only the rows that these batches touch. Of a large batch it compares some bags, spread evenly, and their rows.
class LookupReference {
 public:
  // An empty `optimizer` means forward only. shape and batches must outlive this.
  LookupReference(const Runtime& runtime, const LookupShape& shape, const LookupBatches& batches,
                  const OptimizerSpec& optimizer);
  // `lookup` is fresh and has all rows. Runs a forward of each of the first batches, and a backward if there is an
  // optimizer. Compares the outputs, the rows touched, and the rows next to them, which must not have changed.
  bool agrees(Lookup& lookup) const;

 private:
  void find_touched(size_t compared);
  // the batch's ids that are in `touched_`, as indices into it
  std::unique_ptr<LookupBatch> touching(const LookupBatch& batch) const;
  bool same_rows(Lookup& lookup, int64_t t) const;

  const LookupShape& shape_;
  const LookupBatches& batches_;
  int64_t every_;                              // every how many bags of a table one is compared
  std::vector<std::vector<int64_t>> touched_;  // rows touched, per table, ascending
  std::vector<Tensor> outputs_;                // per compared batch
  // per table: the touched rows after all steps; empty without an optimizer
  std::vector<Tensor> rows_;
  Tensor gradient_;
};

// Opens kernel `id` with all rows, verified and ready to be timed. Throws UsageError with the kernel's reason if it
// cannot serve. All arguments must outlive the subject.
LookupSubject kernel_subject(const Runtime& runtime, const std::string& id, const LookupShape& shape,
                             const LookupBatches& batches, const OptimizerSpec& optimizer,
                             const LookupReference& reference);

// A copy within a device's memory of as many bytes as a batch reads: what the device moves when it only copies.
LookupSubject copy_subject(const LookupShape& shape);

// The machine's random-gather limit: reads and sums whole rows of such tables at the ids of the batches.
LookupSubject limit_subject(const Runtime& runtime, const LookupShape& shape, const LookupBatches& batches);

}  // namespace tessera::cli
