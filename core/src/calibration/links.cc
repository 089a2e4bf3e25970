// Measures the time of collectives over their size.
#include <algorithm>

#include "calibration/parts.h"

namespace tessera {

LinkFigures measure_link(const ProcessGroup& group, const Trials& trials) {
  LinkFigures out{.backend = group.backend(), .ranks = group.world_size()};
  const int others = out.ranks - 1;
  std::vector<std::pair<double, double>> all_to_all, all_reduce;
  for (const int64_t bytes : {64, 2048, 16384, 131072, 1048576, 4194304}) {
    // Data that a rank keeps is not part of the exchange.
    std::vector<int64_t> counts(static_cast<size_t>(out.ranks), std::max<int64_t>(1, bytes / 4 / others));
    counts[static_cast<size_t>(group.rank())] = 0;
    const int64_t elements = counts[group.rank() == 0 ? 1 : 0] * others;
    const Tensor send = Tensor::zeros({elements}), recv = Tensor::zeros({elements});
    all_to_all.emplace_back(static_cast<double>(elements * 4), trials.time_together([&] {
      group.all_to_all_v(send, counts, recv, counts, "calibrate").wait();
    }));
    const Tensor sum = Tensor::zeros({bytes / 4});
    all_reduce.emplace_back(static_cast<double>(bytes),
                            trials.time_together([&] { group.all_reduce(sum, ReduceOp::kSum, "calibrate").wait(); }));
  }
  out.all_to_all = Curve(std::move(all_to_all));
  out.all_reduce = Curve(std::move(all_reduce));
  return out;
}

double measure_delay(const ProcessGroup& group, const Trials& trials, const LinkFigures& link) {
  constexpr int kTogether = 4;
  constexpr int64_t kElements = 4;
  const auto ranks = static_cast<size_t>(group.world_size());
  std::vector<int64_t> counts(ranks, kElements);
  counts[static_cast<size_t>(group.rank())] = 0;
  const Tensor send = Tensor::zeros({kElements * (group.world_size() - 1)});
  std::vector<Tensor> recv;
  for (int i = 0; i < kTogether; ++i) recv.push_back(send.clone());
  const double together = trials.time_together([&] {
    std::vector<Work> works;
    for (const Tensor& to : recv) works.push_back(group.all_to_all_v(send, counts, to, counts, "calibrate"));
    for (Work& work : works) work.wait();
  });
  const double one = link.all_to_all.points().front().second;
  return std::clamp((kTogether * one - together) / (kTogether - 1), 0.0, one);
}

}  // namespace tessera
