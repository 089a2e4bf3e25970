// tessera/sdk/optimizer.h - base class of an optimizer: how one row changes, given its summed gradient.
//
//   class Sgd : public tessera::sdk::Optimizer {
//    public:
//     static constexpr std::array<State, 0> kStates{};                  // or {State{"momentum1", TSR_STATE_PER_ROW}}
//     explicit Sgd(Options& o) : lr_(o.number("learning_rate", 0.01)) {}
//     double learning_rate() const { return lr_; }
//     void update_row(const tsr_update& u, int64_t dim, float* w, const float* g, float* const* states) const noexcept;
//   };
//
// It may have update_rows beside update_row: several rows per call (abi/optimizer.h).
// Nothing is virtual: update_row runs once per row and step. Without update_row, rows are not updated and gradients are
// handed out. The object is used from several threads at once.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/abi/optimizer.h"
#include "tessera/sdk/plugin.h"

namespace tessera::sdk {

class Optimizer {
 public:
  // float32, 0 at the start.
  struct State {
    const char* name;  // "momentum1": TorchRec's names
    int32_t kind;      // TSR_STATE_*
  };

  static constexpr const char* kKind = TSR_OPTIMIZER_KIND;
  template <class C>
  static const tsr_optimizer table;

 private:
  template <class C>
  static constexpr auto make_names() {
    std::array<const char*, C::kStates.size() + 1> names{};  // never of length 0
    for (size_t i = 0; i < C::kStates.size(); ++i) names[i] = C::kStates[i].name;
    return names;
  }
  template <class C>
  static constexpr auto make_kinds() {
    std::array<int32_t, C::kStates.size() + 1> kinds{};
    for (size_t i = 0; i < C::kStates.size(); ++i) kinds[i] = C::kStates[i].kind;
    return kinds;
  }
  template <class C>
  static constexpr auto names = make_names<C>();
  template <class C>
  static constexpr auto kinds = make_kinds<C>();

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
    tsr_optimizer t{sizeof(tsr_optimizer),
                    static_cast<uint32_t>(C::kStates.size()),
                    names<C>.data(),
                    kinds<C>.data(),
                    nullptr,
                    &learning_rate_slot<C>,
                    nullptr,
                    0,
                    0};
    if constexpr (requires { &C::update_row; }) t.update_row = &update_row_slot<C>;
    if constexpr (requires { &C::update_rows; }) t.update_rows = &update_rows_slot<C>;
    return t;
  }
};

template <class C>
constexpr tsr_optimizer Optimizer::table = Optimizer::make_table<C>();

}  // namespace tessera::sdk
