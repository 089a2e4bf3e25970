// Metrics of the order of scores.
#pragma once

#include "tessera/metrics.h"

namespace tessera::metrics {

// The area under the curve of true over false positives; NaN if a class is missing. Equal scores count one half, or
// with `ties_as_they_came` keep their order.
double area_under_curve(const MetricSamples& samples, bool ties_as_they_came);

// kInvalidArgument: a label is outside [0, 1].
void require_labels_to_one(const MetricSamples& samples, const char* metric);

MetricPtr make_auc(int64_t bins, bool as_torchrec);  // bins 0: exact
MetricPtr make_gauc();
MetricPtr make_ndcg(int64_t k);
MetricPtr make_recall_at_k(int64_t k);
MetricPtr make_hit_rate(int64_t k);

// Metrics of ranks among all items, "NAME@K" or "mrr". Null: no such name.
MetricPtr make_of_ranks(const std::string& name, bool by_group);

}  // namespace tessera::metrics
