#include "distributed/device_step.h"

#include <algorithm>

#include "distributed/host_sums.h"
#include "distributed/step.h"

namespace tessera {
namespace {

// The k-th row of a packed piece for every bag that has one.
void number_rows(const int32_t* lengths, int64_t bags, int32_t* index) {
  int32_t row = 0;
  for (int64_t b = 0; b < bags; ++b) index[b] = lengths[b] ? row++ : -1;
}

class Moves {
 public:
  Moves(const Wiring& wiring, Step& step)
      : wiring_(wiring), routed_(step.routed), wire_(step.wire), moves_(step.device->output) {}

  void pooled(const std::vector<Arrival>& arrivals, const std::vector<int64_t>& slot_rows, const SlotLayout& layout) {
    auto arrival = arrivals.begin();
    for (size_t s = 0; s < wiring_.slots().size(); ++s) {
      const Slot& slot = wiring_.slots()[s];
      if (slot.replicated) continue;
      moves_.add_target(slot_rows[s], slot.dim, layout.offset[s], layout.stride[s], routed_.mean_begin[s]);
      int64_t last_stream = -1, index = 0;
      for (; arrival != arrivals.end() && arrival->slot == static_cast<int>(s); ++arrival) {
        if (arrival->lane < 0) {
          const int64_t begin = wire_.host_lengths_begin[arrival->host_sum];
          const int64_t bags = wire_.host_lengths_begin[arrival->host_sum + 1] - begin;
          const int64_t of_sum = moves_.add_index(slot_rows[s]);
          number_rows(wire_.host_lengths.data() + begin, bags, moves_.index(of_sum));
          moves_.add_run(wire_.host_sum_begin[arrival->host_sum], of_sum, arrival->col, arrival->cols);
          last_stream = -1;
          continue;
        }
        const int stream = wiring_.lanes()[arrival->lane].stream;
        if (stream != last_stream) {  // cuts of columns come one behind the other and have the same rows
          index = moves_.add_index(slot_rows[s]);
          number_rows(routed_.lengths.data() + routed_.lengths_begin[stream], routed_.sent[stream].bags,
                      moves_.index(index));
          last_stream = stream;
        }
        moves_.add_run(wire_.lane_begin[arrival->lane], index, arrival->col, arrival->cols);
      }
    }
  }

  // Lanes are ordered by rank; here they are wanted by slot.
  void sequences(const std::vector<int64_t>& slot_rows, const SlotLayout& layout) {
    for (size_t s = 0; s < wiring_.slots().size(); ++s) {
      const Slot& slot = wiring_.slots()[s];
      if (slot.replicated) continue;
      moves_.add_target(slot_rows[s], slot.dim, layout.offset[s], layout.stride[s]);
      for (size_t i = 0; i < wiring_.lanes().size(); ++i) {
        const Lane& lane = wiring_.lanes()[i];
        if (wiring_.streams()[lane.stream].slot != static_cast<int>(s)) continue;
        const int64_t begin = moves_.add_index(slot_rows[s]);
        const int64_t* positions = routed_.positions.data() + routed_.positions_begin[lane.stream];
        int32_t* index = moves_.index(begin);
        for (int64_t k = 0; k < routed_.sent[lane.stream].ids; ++k) index[positions[k]] = static_cast<int32_t>(k);
        moves_.add_run(wire_.lane_begin[i], begin, lane.col, lane.cols);
      }
    }
  }

 private:
  const Wiring& wiring_;
  const RoutedBatch& routed_;
  const WireLayout& wire_;
  RowMoves& moves_;
};

void copy_up(const Buffer& from, Buffer& to, int64_t n, const DeviceStreamPtr& stream) {
  to.ensure(n);
  if (n) stream->copy(from.tensor().first({n}), to.tensor().first({n}));
}

}  // namespace

void place_on_device(Step& step, const DeviceStreamPtr& stream) {
  step.device = std::make_unique<DeviceStep>(stream);
  for (Buffer* buffer : {&step.received.ids, &step.received.offsets, &step.received.weights}) buffer->pinned(stream);
  step.rows.on_device(stream);
}

void upload_step(const RankWiring& own, const std::vector<int64_t>& slot_rows, const SlotLayout& layout, Step& step) {
  DeviceStep& device = *step.device;
  const ReceivedBatch& in = step.received;
  copy_up(in.ids, device.ids, in.num_ids, device.stream);
  copy_up(in.offsets, device.offsets, in.num_offsets, device.stream);
  if (in.weighted) copy_up(in.weights, device.weights, in.num_ids, device.stream);
  device.output.clear();
  Moves moves(own.wiring, step);
  if (own.wiring.sequence())
    moves.sequences(slot_rows, layout);
  else
    moves.pooled(own.arrivals, slot_rows, layout);
  device.output.upload(step.routed.mean_scale);
  if (own.wiring.hosts().count > 1) {
    device.host_sums.clear();
    list_host_sums({own, in, step.wire, step.walks}, device.host_sums);
    device.host_sums.upload({});
  }
  device.uploaded.record();
}

Tensor gradient_on_device(const Tensor& grad, Step& step) {
  if (grad.stream()) return grad;
  DeviceStep& device = *step.device;
  const int64_t n = grad.numel();
  std::copy_n(grad.data<float>(), n, device.host_grad.ensure(n).data<float>());
  copy_up(device.host_grad, device.grad, n, device.stream);
  device.uploaded.record();
  return device.grad.tensor().first({n});
}

}  // namespace tessera
