#include "train/traffic_report.h"

#include <algorithm>
#include <vector>

namespace tessera {
namespace {

constexpr const char* kExchanges[] = {"ids", "rows", "gradients", "unused_inline"};

template <class Number>
void append(std::vector<double>& out, const ExchangeBytes<Number>& bytes, double steps) {
  for (const HostBytes<Number>& exchange : {bytes.ids, bytes.rows, bytes.gradients, bytes.unused_inline}) {
    out.push_back(static_cast<double>(exchange.in_host) / steps);
    out.push_back(static_cast<double>(exchange.across_hosts) / steps);
  }
}

}  // namespace

std::vector<ExchangeFigures> traffic_report(const ProcessGroup& group, const ExchangeBytes<int64_t>& sent, double steps,
                                            const ExchangeBytes<double>& planned) {
  std::vector<double> numbers;
  append(numbers, planned, 1);
  append(numbers, sent, std::max(steps, 1.0));
  const Tensor all = Tensor::from(numbers);
  group.all_reduce(all, ReduceOp::kSum, "traffic").wait();
  const double* const plan = all.data<double>();
  const double* const run = plan + numbers.size() / 2;
  std::vector<ExchangeFigures> out;
  for (size_t at = 0; at < std::size(kExchanges); ++at)
    out.push_back({kExchanges[at], {plan[2 * at], run[2 * at]}, {plan[2 * at + 1], run[2 * at + 1]}});
  return out;
}

}  // namespace tessera
