// The heads of a model that a command asks: their names, the labels of the data that they predict, and the quality of
// their answers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/data.h"
#include "tessera/metrics.h"
#include "tessera/predictor.h"

namespace tessera::cli {

struct AskedHead {
  size_t output = 0;                           // index of the model's output
  std::string name;                            // name of the head; "score" if it is the only one
  size_t width = 1;                            // values per sample
  std::optional<size_t> label;                 // index of the data's label; unset if there is none
  std::optional<size_t> where = std::nullopt;  // index of the label that says which samples count; unset: all do
};

// The model's outputs of the heads in `names`, in that order; all heads if `names` is empty. Throws kInvalidArgument,
// naming the nearest head, for an unknown name.
std::vector<size_t> asked_outputs(const ModelDescription& model, const std::vector<std::string>& names = {});
// Throws kInvalidArgument if only one head is asked and the data has several labels, but not the one it predicts. If
// several heads are asked, such a head has no label.
std::vector<AskedHead> asked_heads(const ModelDescription& model, const std::vector<size_t>& outputs,
                                   const Dataset& data);
// Values per sample that each output of the model is asked for; 0 if it is not asked.
std::vector<size_t> widths_of(const ModelDescription& model, const std::vector<AskedHead>& heads);

// Says that labels of one kind have no AUC, and what the model counts as 1, in case the data write it in another way.
// Empty if all heads have an AUC or none is wanted.
std::string no_auc_note(const MetricValues& metrics, const Dataset& data, const ModelDescription& model);

// Judges the answers of each head that has a label and one value per sample, or one for each class, by the usual
// metrics. Their names are those of training, "HEAD.METRIC" if there are several heads.
class HeadJudge {
 public:
  // `streamed`: samples are not kept, and the AUC is computed over bins.
  HeadJudge(const ModelDescription& model, const std::vector<AskedHead>& heads, bool streamed);
  // Adds a batch; values[o] are those of output o.
  void add(const std::vector<std::vector<float>>& values, const Batch& batch);
  MetricValues values() const;  // empty if no head is judged

 private:
  struct Judged {
    AskedHead head;
    bool probability;    // scores are in (0, 1) and are judged as their logits
    std::string before;  // prefix of its metrics' names
    MetricSet set;
  };
  std::vector<Judged> judged_;
};

}  // namespace tessera::cli
