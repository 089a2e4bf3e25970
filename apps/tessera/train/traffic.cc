#include "train/traffic.h"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace tessera::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* kExchanges[] = {"ids", "rows", "gradients", "room"};
constexpr const char* kReaches[] = {"in_host", "across_hosts"};

template <class Number>
void append(std::vector<double>& out, const ExchangeBytes<Number>& bytes, double steps) {
  for (const HostBytes<Number>& exchange : {bytes.ids, bytes.rows, bytes.gradients, bytes.room}) {
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

void print_traffic(const json& report) {
  const auto number = [](const json& v, const char* key) { return v[key].get<double>(); };
  std::printf("\n%-20s %14s %14s %14s %14s\n", "bytes per step", "in hosts", "planned", "across hosts", "planned");
  for (const auto& [name, v] : report.items()) {
    const json &in = v["in_host"], &across = v["across_hosts"];
    std::printf("%-20s %14.0f %14.0f %14.0f %14.0f\n", name.c_str(), number(in, "sent"), number(in, "planned"),
                number(across, "sent"), number(across, "planned"));
  }
}

}  // namespace tessera::cli
