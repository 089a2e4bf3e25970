// The heads of a model that a command asks: what they are called, which labels of the data they are about, and how good
// their answers are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/data.h"
#include "tessera/metrics.h"
#include "tessera/predictor.h"

namespace tessera::cli {

struct AskedHead {
  size_t output = 0;            // of the model
  std::string name;             // the head's; of one alone "score"
  size_t width = 1;             // values of a sample
  std::optional<size_t> label;  // of the data
};

// The model's outputs of the heads called `names`, in that order; without names all. kInvalidArgument: there is no head
// of a name, and which is the nearest.
std::vector<size_t> asked_outputs(const ModelDescription& model, const std::vector<std::string>& names = {});
// kInvalidArgument: one head is asked, and of several labels none is the one that it predicts. One of several heads has
// no label then.
std::vector<AskedHead> asked_heads(const ModelDescription& model, const std::vector<size_t>& outputs,
                                   const Dataset& data);
// Values of a sample that each output of the model is asked for; 0: none.
std::vector<size_t> widths_of(const ModelDescription& model, const std::vector<AskedHead>& heads);

// How good the answers of each head are that has a label and one value a sample: the usual metrics, called as training
// does, "HEAD.METRIC" of several heads.
class HeadJudge {
 public:
  // `streamed`: no sample is kept, and the AUC is one over bins.
  HeadJudge(const ModelDescription& model, const std::vector<AskedHead>& heads, bool streamed);
  // A batch: values[o] of output o.
  void add(const std::vector<std::vector<float>>& values, const Batch& batch);
  MetricValues values() const;  // none where no head is judged

 private:
  struct Judged {
    AskedHead head;
    bool probability;    // scores are in (0, 1), and judged as the logits that gave them
    std::string before;  // what stands before its metrics' names
    MetricSet set;
  };
  std::vector<Judged> judged_;
};

}  // namespace tessera::cli
