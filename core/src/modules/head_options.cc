#include "modules/head_options.h"

namespace tessera {

std::string what_only_hosts_train(const std::vector<HeadSpec>& heads) {
  for (const HeadSpec& head : heads) {
    const char* what = !head.where.empty()         ? "counts samples by another label"
                       : head.label_smoothing != 0 ? "smooths labels"
                       : head.positive_weight != 1 ? "has a positive_weight"
                       : head.focal_gamma != 0     ? "has a focal_gamma"
                       : head.learn_weight         ? "learns its weight"
                                                   : nullptr;
    if (what) return str_cat("the head \"", head.name, "\" ", what);
  }
  return "";
}

ParameterList learnt_weights_of(const std::vector<HeadSpec>& heads, const std::map<std::string, Tensor>* values,
                                ParameterList& parameters) {
  ParameterList out;
  for (const HeadSpec& head : heads) {
    out.push_back(nullptr);
    const std::string name = head.name + kLearntWeight;
    if (!head.learn_weight || (values && !values->contains(name))) continue;
    out.back() = std::make_shared<Parameter>();
    out.back()->name = name;
    out.back()->value = values ? values->at(name) : Tensor::zeros({1});
    parameters.push_back(out.back());
  }
  return out;
}

}  // namespace tessera
