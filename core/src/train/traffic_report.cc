#include "train/traffic_report.h"

#include <algorithm>
#include <vector>

namespace tessera {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* kExchanges[] = {"ids", "rows", "gradients", "unused_inline"};
constexpr const char* kReaches[] = {"in_host", "across_hosts"};

template <class Number>
void append(std::vector<double>& out, const ExchangeBytes<Number>& bytes, double steps) {
  for (const HostBytes<Number>& exchange : {bytes.ids, bytes.rows, bytes.gradients, bytes.unused_inline}) {
    out.push_back(static_cast<double>(exchange.in_host) / steps);
    out.push_back(static_cast<double>(exchange.across_hosts) / steps);
  }
}

}  // namespace

json traffic_report(const ProcessGroup& group, const ExchangeBytes<int64_t>& sent, double steps,
                    const ExchangeBytes<double>& planned) {
  std::vector<double> numbers;
  append(numbers, sent, std::max(steps, 1.0));
  append(numbers, planned, 1);
  const Tensor all = Tensor::from(numbers);
  group.all_reduce(all, ReduceOp::kSum, "traffic").wait();
  numbers = all.to_vector<double>();
  json out;
  size_t at = 0;
  for (const char* exchange : kExchanges) {
    for (const char* reach : kReaches) {
      out[exchange][reach] = {{"sent", numbers[at]}, {"planned", numbers[at + numbers.size() / 2]}};
      ++at;
    }
  }
  return out;
}

}  // namespace tessera
