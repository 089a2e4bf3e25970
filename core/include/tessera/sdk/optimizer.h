// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/optimizer.h - base class of an optimizer: updates one row from its summed gradient.
//
//   class Sgd : public tessera::sdk::Optimizer {
//    public:
//     explicit Sgd(Options& o) : lr_(o.number("learning_rate", 0.01)) {}
//     double learning_rate() const { return lr_; }
//     std::vector<State> states() const { return {{"momentum1", TSR_STATE_PER_ELEMENT}}; }  // left out: none
//     void update_row(const tsr_update& u, int64_t dim, float* w, const float* g, float* const* states) const noexcept;
//   };
//
// It may also have update_rows, for several rows per call, and `static constexpr const char* kFormula`, the name of its
// formula (abi/optimizer.h). Nothing is virtual, because update_row runs once per row and step. Without update_row,
// rows are not updated and gradients are returned. Several threads use the object at once.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/abi/optimizer.h"
#include "tessera/sdk/plugin.h"
#include "tessera/sdk/structs.h"
#include "tessera/sdk/tensor.h"

namespace tessera::sdk {
inline namespace v1 {

class Optimizer {
 public:
  struct State {
    const char* name;  // "momentum1": TorchRec's names. Must live as long as the optimizer
    int32_t kind;      // TSR_STATE_*
    double start = 0;  // each value before the first update
    DLDataType dtype = dtype_of<float>();
  };

  static constexpr const char* kKind = TSR_OPTIMIZER_KIND;
  template <class C>
  static const tsr_optimizer table;

 private:
  template <class C>
  static tsr_code state_slot(void* self, uint32_t i, tsr_state* out, tsr_error* err) noexcept {
    return guard(err, [&] {
      const std::vector<State> all = static_cast<const C*>(self)->states();
      if (i >= all.size()) fail(TSR_OUT_OF_RANGE, "there are ", all.size(), " states");
      const State& s = all[i];
      write_struct(tsr_state{sizeof(tsr_state), s.kind, s.dtype, 0, s.start, s.name}, out);
    });
  }
  template <class C>
  static void update_row_slot(void* self, const tsr_update* update, int64_t dim, float* weight, const float* grad,
                              float* const* states) noexcept {
    static_cast<const C*>(self)->update_row(*update, dim, weight, grad, states);
  }
  template <class C>
  static void update_rows_slot(void* self, const tsr_update* update, int64_t dim, int64_t count, float* const* weights,
                               const float* const* grads, float* const* states) noexcept {
    static_cast<const C*>(self)->update_rows(*update, dim, count, weights, grads, states);
  }
  template <class C>
  static double learning_rate_slot(void* self) noexcept {
    return static_cast<const C*>(self)->learning_rate();
  }
  template <class C>
  static constexpr tsr_optimizer make_table() {
    tsr_optimizer t{};
    t.struct_size = sizeof(tsr_optimizer);
    t.learning_rate = &learning_rate_slot<C>;
    if constexpr (requires { &C::states; }) t.state = &state_slot<C>;
    if constexpr (requires { &C::update_row; }) t.update_row = &update_row_slot<C>;
    if constexpr (requires { &C::update_rows; }) t.update_rows = &update_rows_slot<C>;
    if constexpr (requires { C::kFormula; }) t.formula = C::kFormula;
    return t;
  }
};

template <class C>
constexpr tsr_optimizer Optimizer::table = Optimizer::make_table<C>();

}  // namespace v1
}  // namespace tessera::sdk
