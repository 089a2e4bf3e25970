// The subjects that `bench lookup` times, kernels among them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/lookup_workload.h"
#include "tessera/runtime.h"

namespace tessera::cli {

enum class LookupPass { kForward, kTrain, kLimit, kCopy };
LookupPass lookup_pass_from(const std::string& name);  // "forward", "train", "limit", "copy"; UsageError
const char* to_string(LookupPass pass);

// One way to do a batch. A kernel has one; the limit has one for each prefetch distance and hint, of which the best
// counts.
struct LookupWay {
  std::function<void(size_t batch)> run;
  std::function<void()> wait;   // for what runs have enqueued on a device; empty: a run is done when it returns
  int ahead = 0;                // rows between a prefetch and the read
  const char* hint = "none";    // of the prefetch
  int calls = 1;                // that are timed together
  size_t next = 0;              // batch, counted on and on
  std::vector<double> samples;  // microseconds of one call
  std::vector<double> rounds;   // of each round: their median

  void forget() {
    samples.clear();
    rounds.clear();
  }
};

// A line of the result.
struct LookupSubject {
  std::string kernel, optimizer = "none";
  LookupPass pass = LookupPass::kForward;
  bool verified = false;        // against the reference kernel, before anything is timed
  double bytes = 0;             // of rows that a batch moves
  double moved = 0;             // and of optimizer states
  std::vector<LookupWay> ways;  // not empty
};

// The answers of the kernel "reference" for the first batches, and whether another kernel gives them too. It keeps
// only the rows that these batches touch; of large batches some bags are compared, spread over all, and their rows.
class LookupReference {
 public:
  // `optimizer` empty: forward alone. shape and batches must outlive this.
  LookupReference(const Runtime& runtime, const LookupShape& shape, const LookupBatches& batches,
                  const OptimizerSpec& optimizer);
  // lookup: fresh, with all rows. Does a forward of each of the first batches, and a backward where there is an
  // optimizer; compares outputs, the rows touched, and the rows beside them that must not have changed.
  bool agrees(Lookup& lookup) const;

 private:
  void find_touched(size_t compared);
  std::unique_ptr<LookupBatch> touching(const LookupBatch& batch) const;  // its ids that are, numbered by `touched_`
  bool same_rows(Lookup& lookup, int64_t t) const;

  const LookupShape& shape_;
  const LookupBatches& batches_;
  int64_t every_;                              // so many-th bag of a table is compared
  std::vector<std::vector<int64_t>> touched_;  // by those, by table, ascending
  std::vector<Tensor> outputs_;                // of each batch compared
  std::vector<Tensor> rows_;                   // touched, after all steps; by table; empty without an optimizer
  Tensor gradient_;
};

// Kernel `id` with all rows, verified, ready to be timed. UsageError with the kernel's reason where it cannot serve.
// Everything given must outlive the subject.
LookupSubject kernel_subject(const Runtime& runtime, const std::string& id, const LookupShape& shape,
                             const LookupBatches& batches, const OptimizerSpec& optimizer,
                             const LookupReference& reference);

// A device's copy, within its memory, of as many bytes as a batch reads: what it moves when it only moves.
LookupSubject copy_subject(const LookupShape& shape);

// The machine's random-gather limit: whole rows of such tables, at the ids of the batches, read and summed.
LookupSubject limit_subject(const Runtime& runtime, const LookupShape& shape, const LookupBatches& batches);

}  // namespace tessera::cli
