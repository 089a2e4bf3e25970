// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/device_ops.h - base class of a device plugin's arithmetic. abi/draft/device_ops.h is the
// specification. A class derives from both sdk::Device and this:
//
//   class Mine : public sdk::Device, public sdk::DeviceOps {
//     const void* extension(std::string_view id) const { return device_ops<Mine>(id); }
//     void combine_rows(const tsr_row_moves& moves, tsr_stream stream) override;
//     ...
//   };
#pragma once

#include <string_view>

#include "tessera/abi/draft/device_ops.h"
#include "tessera/sdk/draft/device.h"

namespace tessera::sdk {
inline namespace v1 {

class DeviceOps {
 public:
  virtual ~DeviceOps() = default;
  // Optional: override both or neither.
  virtual void combine_rows([[maybe_unused]] const tsr_row_moves& moves, [[maybe_unused]] tsr_stream stream) {}
  virtual void split_rows([[maybe_unused]] const tsr_row_moves& moves, [[maybe_unused]] tsr_stream stream) {}

  // Optional: override all four or none.
  virtual void sum_lengths([[maybe_unused]] const DLTensor& lengths, [[maybe_unused]] const DLTensor& offsets,
                           [[maybe_unused]] tsr_stream stream) {}
  virtual void check_bounds([[maybe_unused]] const tsr_jagged& input, [[maybe_unused]] const DLTensor& rows,
                            [[maybe_unused]] const DLTensor* repaired, [[maybe_unused]] tsr_bounds_report* report,
                            [[maybe_unused]] tsr_stream stream) {}
  virtual void permute([[maybe_unused]] const tsr_jagged& input, [[maybe_unused]] const DLTensor& order,
                       [[maybe_unused]] const tsr_jagged_output& output, [[maybe_unused]] tsr_stream stream) {}
  virtual void bucketize([[maybe_unused]] const tsr_jagged& input, [[maybe_unused]] int32_t blocks,
                         [[maybe_unused]] const DLTensor& block_rows, [[maybe_unused]] const tsr_jagged_output& output,
                         [[maybe_unused]] tsr_stream stream) {}

  // Optional: override both or neither.
  virtual void update_parameters([[maybe_unused]] const tsr_parameter_updates& updates,
                                 [[maybe_unused]] tsr_stream stream) {}
  virtual void binary_cross_entropy([[maybe_unused]] const tsr_binary_cross_entropy& loss,
                                    [[maybe_unused]] tsr_stream stream) {}

  // Optional.
  virtual void clip_gradients([[maybe_unused]] const tsr_clipping& clipping, [[maybe_unused]] tsr_stream stream) {}

 protected:
  // The result of C::extension: the table if `id` is this draft's, else null.
  template <class C>
  static const void* device_ops(std::string_view id) {
    static constexpr tsr_device_ops kTable = make_table<C>();
    return id == TSR_DEVICE_OPS_DRAFT_1 ? &kTable : nullptr;
  }

 private:
  template <class C>
  static DeviceOps& of(void* self) {
    return *static_cast<C*>(self);
  }

  template <class C>
  static tsr_code combine_slot(void* self, const tsr_row_moves* moves, tsr_stream stream, tsr_error* err) noexcept {
    return guard(err, [&] { of<C>(self).combine_rows(*moves, stream); });
  }
  template <class C>
  static tsr_code split_slot(void* self, const tsr_row_moves* moves, tsr_stream stream, tsr_error* err) noexcept {
    return guard(err, [&] { of<C>(self).split_rows(*moves, stream); });
  }
  template <class C>
  static tsr_code sum_lengths_slot(void* self, const DLTensor* lengths, const DLTensor* offsets, tsr_stream stream,
                                   tsr_error* err) noexcept {
    return guard(err, [&] { of<C>(self).sum_lengths(*lengths, *offsets, stream); });
  }
  template <class C>
  static tsr_code check_bounds_slot(void* self, const tsr_jagged* input, const DLTensor* rows, const DLTensor* repaired,
                                    tsr_bounds_report* report, tsr_stream stream, tsr_error* err) noexcept {
    return guard(err, [&] { of<C>(self).check_bounds(*input, *rows, repaired, report, stream); });
  }
  template <class C>
  static tsr_code permute_slot(void* self, const tsr_jagged* input, const DLTensor* order,
                               const tsr_jagged_output* output, tsr_stream stream, tsr_error* err) noexcept {
    return guard(err, [&] { of<C>(self).permute(*input, *order, *output, stream); });
  }
  template <class C>
  static tsr_code bucketize_slot(void* self, const tsr_jagged* input, int32_t blocks, const DLTensor* block_rows,
                                 const tsr_jagged_output* output, tsr_stream stream, tsr_error* err) noexcept {
    return guard(err, [&] { of<C>(self).bucketize(*input, blocks, *block_rows, *output, stream); });
  }

  template <class C>
  static tsr_code update_slot(void* self, const tsr_parameter_updates* updates, tsr_stream stream,
                              tsr_error* err) noexcept {
    return guard(err, [&] { of<C>(self).update_parameters(*updates, stream); });
  }
  template <class C>
  static tsr_code loss_slot(void* self, const tsr_binary_cross_entropy* loss, tsr_stream stream,
                            tsr_error* err) noexcept {
    return guard(err, [&] { of<C>(self).binary_cross_entropy(*loss, stream); });
  }
  template <class C>
  static tsr_code clip_slot(void* self, const tsr_clipping* clipping, tsr_stream stream, tsr_error* err) noexcept {
    return guard(err, [&] { of<C>(self).clip_gradients(*clipping, stream); });
  }

  template <class C>
  static constexpr tsr_device_ops make_table() {
    using Base = DeviceOps;
    tsr_device_ops t{};
    t.struct_size = sizeof(t);
    if (detail::overrides(&C::combine_rows, &Base::combine_rows)) t.combine_rows = &combine_slot<C>;
    if (detail::overrides(&C::split_rows, &Base::split_rows)) t.split_rows = &split_slot<C>;
    if (detail::overrides(&C::sum_lengths, &Base::sum_lengths)) t.sum_lengths = &sum_lengths_slot<C>;
    if (detail::overrides(&C::check_bounds, &Base::check_bounds)) t.check_bounds = &check_bounds_slot<C>;
    if (detail::overrides(&C::permute, &Base::permute)) t.permute = &permute_slot<C>;
    if (detail::overrides(&C::bucketize, &Base::bucketize)) t.bucketize = &bucketize_slot<C>;
    if (detail::overrides(&C::update_parameters, &Base::update_parameters)) t.update_parameters = &update_slot<C>;
    if (detail::overrides(&C::binary_cross_entropy, &Base::binary_cross_entropy))
      t.binary_cross_entropy = &loss_slot<C>;
    if (detail::overrides(&C::clip_gradients, &Base::clip_gradients)) t.clip_gradients = &clip_slot<C>;
    return t;
  }
};

}  // namespace v1
}  // namespace tessera::sdk
