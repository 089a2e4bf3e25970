#include "train/traffic_report.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr const char* kExchanges[] = {"ids", "rows", "gradients", "unused_inline"};

template <class Number>
void append(std::vector<double>& out, const ExchangeBytes<Number>& bytes, double steps) {
  for (const HostBytes<Number>& exchange : {bytes.ids, bytes.rows, bytes.gradients, bytes.unused_inline}) {
    out.push_back(static_cast<double>(exchange.in_host) / steps);
    out.push_back(static_cast<double>(exchange.across_hosts) / steps);
  }
  out.push_back(static_cast<double>(bytes.ids_wanted) / steps);
  out.push_back(static_cast<double>(bytes.ids_sent) / steps);
}

}  // namespace

void report_traffic(const ProcessGroup& group, const ExchangeBytes<int64_t>& sent, double steps,
                    const ExchangeBytes<double>& planned, RunReport& out) {
  std::vector<double> numbers;
  append(numbers, planned, 1);
  append(numbers, sent, std::max(steps, 1.0));
  const Tensor all = Tensor::from(numbers);
  group.all_reduce(all, ReduceOp::kSum, "traffic").wait();
  const double* const plan = all.data<double>();
  const double* const run = plan + numbers.size() / 2;
  constexpr size_t kCount = std::size(kExchanges);
  for (size_t at = 0; at < kCount; ++at)
    out.traffic.push_back({kExchanges[at], {plan[2 * at], run[2 * at]}, {plan[2 * at + 1], run[2 * at + 1]}});
  const double wanted = run[2 * kCount];
  const PlannedFigure ids{plan[2 * kCount + 1], run[2 * kCount + 1]};
  if (ids.measured < wanted || ids.predicted < plan[2 * kCount]) out.ids = {wanted, ids};
}

}  // namespace tessera
