// Checks optimizers: the formulas of those that TorchRec also has, and rules that hold for every one.
#include "tessera/abi/optimizer.h"

#include <cmath>
#include <cstring>
#include <set>

#include "verify/check.h"
#include "verify/formulas.h"
#include "verify/kernel_bed.h"
#include "verify/other_processes.h"
#include "verify/threads.h"

namespace tessera::cli::verify {
namespace {

constexpr int64_t kDims[] = {1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100, 128, 130, 257, 1030};

// Rows with their states and gradients, each followed by guard floats that must not be written.
class RowSet {
 public:
  static constexpr float kBehind = -7.25e30f;
  RowSet(const sdk::OptimizerRef& updates, int64_t dim, int64_t count) : updates_(updates), dim_(dim), count_(count) {
    weights = array(dim, 0);
    grads = array(dim, 0);
    for (uint32_t k = 0; k < updates.num_states(); ++k)
      states.push_back(array(width(k), static_cast<float>(updates.state(k).start)));
  }
  void randomize(Random& random) {
    std::normal_distribution<float> normal(0, 1);
    for (int64_t i = 0; i < count_; ++i) {
      for (int64_t d = 0; d < dim_; ++d) {
        *row(weights, dim_, i, d) = normal(random);
        *row(grads, dim_, i, d) = normal(random);
      }
    }
  }
  int64_t width(uint32_t k) const { return updates_.state_width(k, dim_); }
  static float* row(std::vector<float>& data, int64_t width, int64_t i, int64_t d = 0) {
    return data.data() + i * (width + 1) + d;
  }
  float* weight(int64_t i) { return row(weights, dim_, i); }
  float* grad(int64_t i) { return row(grads, dim_, i); }
  float* state(uint32_t k, int64_t i) { return row(states[k], width(k), i); }
  int64_t dim() const { return dim_; }
  int64_t count() const { return count_; }
  void check_ends(const char* what) {
    for (int64_t i = 0; i < count_; ++i) {
      require(weight(i)[dim_] == kBehind, what, " writes past a row of ", dim_, " floats");
      require(grad(i)[dim_] == kBehind, what, " writes past a gradient of ", dim_, " floats");
      for (uint32_t k = 0; k < updates_.num_states(); ++k) {
        require(state(k, i)[width(k)] == kBehind, what, " writes past the state ", updates_.state(k).name, " of ",
                width(k), " floats");
      }
    }
  }
  std::vector<float> weights, grads;
  std::vector<std::vector<float>> states;

 private:
  // Each row gets one guard float more.
  std::vector<float> array(int64_t width, float start) const {
    std::vector<float> out(static_cast<size_t>(count_ * (width + 1)), start);
    for (int64_t i = 0; i < count_; ++i) out[static_cast<size_t>(i * (width + 1) + width)] = kBehind;
    return out;
  }
  const sdk::OptimizerRef updates_;
  int64_t dim_, count_;
};

struct Optimizer {
  explicit Optimizer(Subject& s) : subject(s), part(s.make()), api(part.api<tsr_optimizer>()), ref(part.raw()) {}
  bool updates() const { return TSR_HAS(tsr_optimizer, &api, update_row); }
  void needs_update() const {
    if (!updates()) throw Skipped("it updates no rows: gradients are handed out");
    try {
      ref.check_states();
    } catch (const sdk::Failure& other_states) {  // the arrays of these checks are float32
      throw Skipped(other_states.what());
    }
  }
  void one_by_one(const tsr_update& update, RowSet& rows) const { range(update, rows, 0, rows.count()); }
  void range(const tsr_update& update, RowSet& rows, int64_t begin, int64_t end) const {
    std::vector<float*> states(ref.num_states() + 1);
    for (int64_t i = begin; i < end; ++i) {
      for (uint32_t k = 0; k < ref.num_states(); ++k) states[k] = rows.state(k, i);
      api.update_row(part.self(), &update, rows.dim(), rows.weight(i), rows.grad(i), states.data());
    }
  }
  void together(const tsr_update& update, RowSet& rows) const {
    const size_t n = static_cast<size_t>(rows.count());
    std::vector<float*> weights(n), states(ref.num_states() * n + 1);
    std::vector<const float*> grads(n);
    for (size_t i = 0; i < n; ++i) {
      weights[i] = rows.weight(static_cast<int64_t>(i));
      grads[i] = rows.grad(static_cast<int64_t>(i));
      for (uint32_t k = 0; k < ref.num_states(); ++k) states[k * n + i] = rows.state(k, static_cast<int64_t>(i));
    }
    api.update_rows(part.self(), &update, rows.dim(), rows.count(), weights.data(), grads.data(), states.data());
  }
  Subject& subject;
  Made part;
  const tsr_optimizer& api;
  const sdk::OptimizerRef ref;
};

tsr_update at_step(int64_t step, double learning_rate) {
  auto out = sdk::sized<tsr_update>();
  out.learning_rate = learning_rate;
  out.step = step;
  return out;
}
// Each step has a learning rate of its own.
tsr_update at_step(int64_t step) { return at_step(step, learning_rate_at(step)); }

std::vector<tsr_state> states_of(const Made& part) {
  const auto& api = part.api<tsr_optimizer>();
  std::vector<tsr_state> out;
  constexpr uint32_t kMost = 1000;
  while (TSR_HAS(tsr_optimizer, &api, state) && out.size() < kMost) {
    auto s = sdk::sized<tsr_state>();
    Call call;
    const tsr_code code = api.state(part.self(), static_cast<uint32_t>(out.size()), &s, call.out());
    if (code == TSR_OUT_OF_RANGE) return out;
    call.succeeds(code, "state");
    out.push_back(s);
  }
  require(out.size() < kMost, "state gives ", kMost, " states and no TSR_OUT_OF_RANGE after the last one");
  return out;
}

void check_optimizer_states(Subject& subject) {
  const Made part = subject.make();
  subject.doing("state");
  const std::vector<tsr_state> all = states_of(part);
  std::set<std::string> names;
  for (size_t k = 0; k < all.size(); ++k) {
    const tsr_state& s = all[k];
    require(s.name != nullptr && *s.name != '\0', "state ", k, " has no name");
    require(names.insert(s.name).second, "two states are called ", s.name);
    require(s.kind == TSR_STATE_PER_ROW || s.kind == TSR_STATE_PER_ELEMENT, "state ", s.name, " has kind ", s.kind,
            ", which does not exist");
    require((s.flags & TSR_MUST_UNDERSTAND) == 0, "state ", s.name, " has flags ", s.flags,
            ", which no kernel understands");
    require(s.dtype.lanes == 1 && s.dtype.bits >= 8, "state ", s.name, " has DLPack type code ", int{s.dtype.code},
            " with ", int{s.dtype.bits}, " bits in ", s.dtype.lanes, " lanes, which is not a number in memory");
    require(std::isfinite(s.start), "state ", s.name, " starts at ", s.start);
  }
  const Made other = subject.make();
  for (const Made* again : {&part, &other}) {
    const std::vector<tsr_state> now = states_of(*again);
    bool equal = now.size() == all.size();
    for (size_t k = 0; equal && k < all.size(); ++k) {
      equal = std::string(now[k].name) == all[k].name && now[k].kind == all[k].kind && now[k].start == all[k].start &&
              sdk::same_dtype(now[k].dtype, all[k].dtype);
    }
    require(equal, "its states differ from call to call: what a kernel keeps would not fit");
  }
  const auto& api = part.api<tsr_optimizer>();
  require(!TSR_HAS(tsr_optimizer, &api, update_rows) || TSR_HAS(tsr_optimizer, &api, update_row),
          "it has update_rows, but no update_row");
}

void check_optimizer_learning_rate(Subject& subject) {
  const double before = Optimizer(subject).api.learning_rate(subject.make().self());
  require(std::isfinite(before), "learning_rate is not finite without options");
  const Made named = subject.make(with_option(subject.what().options, "learning_rate", 0.125));
  subject.doing("learning_rate");
  const double got = named.api<tsr_optimizer>().learning_rate(named.self());
  require(got == 0.125, "created with learning_rate 0.125, it says that its learning rate is ", got);
}

void check_optimizer_rows_of_every_width(Subject& subject) {
  const Optimizer o(subject);
  o.needs_update();
  Random random = subject.random();
  for (const int64_t dim : kDims) {
    RowSet rows(o.ref, dim, 3);
    rows.randomize(random);
    const std::vector<float> grads = rows.grads;
    subject.doing(str_cat("update_row of ", dim, " floats"));
    for (int64_t step = 1; step <= 3; ++step) o.one_by_one(at_step(step), rows);
    rows.check_ends("update_row");
    require(rows.grads == grads, "update_row changes the gradient of a row of ", dim, " floats");
  }
}

void check_optimizer_zeros(Subject& subject) {
  const Optimizer o(subject);
  o.needs_update();
  RowSet rows(o.ref, 16, 2);
  subject.doing("update_row of zeros");
  for (int64_t step = 1; step <= 3; ++step) o.one_by_one(at_step(step), rows);
  for (int64_t d = 0; d < 16; ++d)
    require(std::isfinite(rows.weight(0)[d]), "a row of zeros with a gradient of zeros becomes ", rows.weight(0)[d]);
}

// Updating many rows at once gives the same bits as one after the other.
void check_optimizer_rows_together(Subject& subject) {
  const Optimizer o(subject);
  o.needs_update();
  if (!TSR_HAS(tsr_optimizer, &o.api, update_rows)) throw Skipped("it has no update_rows");
  Random random = subject.random();
  for (const int64_t dim : kDims) {
    std::vector<int64_t> counts{1, 5, 300};
    if (dim == 3) counts.push_back(70001);
    for (const int64_t count : counts) {
      RowSet alone(o.ref, dim, count);
      alone.randomize(random);
      RowSet together = alone;
      subject.doing(str_cat("update_rows of ", count, " rows of ", dim, " floats"));
      for (int64_t step = 1; step <= 3; ++step) {
        o.one_by_one(at_step(step), alone);
        o.together(at_step(step), together);
      }
      together.check_ends("update_rows");
      for (int64_t i = 0; i < count; ++i) {
        require(std::memcmp(alone.weight(i), together.weight(i), static_cast<size_t>(dim) * 4) == 0, "row ", i, " of ",
                count, " rows of ", dim, " floats differs after update_rows from what update_row makes of it");
      }
      require(alone.states == together.states, "states of ", count, " rows of ", dim,
              " floats differ after update_rows from what update_row makes of them");
    }
  }
}

void compare_with(const Formula& formula, Subject& subject) {
  const Made part = subject.make(formula.options);
  const auto& api = part.api<tsr_optimizer>();
  const sdk::OptimizerRef states_of_part(part.raw());
  require(formula.states.size() == states_of_part.num_states(), "it has ", states_of_part.num_states(),
          " states, but the formula has ", formula.states.size());
  Random random = subject.random();
  for (const int64_t dim : kDims) {
    RowSet rows(states_of_part, dim, 1);
    rows.randomize(random);
    PlainRow plain(formula, {rows.weight(0), rows.weight(0) + dim});
    for (const int64_t step : {1, 2, 3, 4, 70001, 16777219}) {
      const tsr_update update = at_step(step);
      std::vector<float*> states(states_of_part.num_states() + 1);
      for (uint32_t k = 0; k < states_of_part.num_states(); ++k) states[k] = rows.state(k, 0);
      subject.doing("update_row");
      api.update_row(part.self(), &update, dim, rows.weight(0), rows.grad(0), states.data());
      plain.update(update, {rows.grad(0), rows.grad(0) + dim});
      for (int64_t d = 0; d < dim; ++d) {
        const double want = plain.weights[static_cast<size_t>(d)], got = rows.weight(0)[d];
        require(std::abs(got - want) <= 2e-4 * std::abs(want) + 2e-5, "element ", d, " of a row of ", dim, " is ", got,
                " after step ", step, ", but the formula gives ", want, " (", formula.text, ")");
      }
    }
  }
}

void check_optimizer_formula(Subject& subject) {
  Optimizer(subject).needs_update();
  const tsr_optimizer& api = subject.api<tsr_optimizer>();
  const std::string& id = subject.what().line.id;
  const std::vector<const Formula*> formulas =
      formulas_of(TSR_HAS(tsr_optimizer, &api, formula) ? std::string(api.formula) : id);
  if (formulas.empty()) throw Skipped(str_cat("verify knows no formula for \"", id, "\", only those of TorchRec's"));
  for (const Formula* formula : formulas) compare_with(*formula, subject);
}

void check_optimizer_over_kernel(Subject& subject) {
  const Optimizer o(subject);
  o.needs_update();
  Random random = subject.random();
  ComponentPtr kernel;
  try {
    kernel = subject.others().create("tessera.kernel/1", "auto");
  } catch (const Error& e) {
    throw Skipped(str_cat("there is no kernel next to this program: ", e.what()));
  }
  KernelShape shape{.tables = {{7, 4}, {40, 17}, {100, 32}}};
  KernelBed bed({subject, *kernel->raw(), *o.part.raw(), subject.what().options, shape});
  bed.open();
  const KernelBed::Rows fresh = bed.export_rows(2, 100);
  for (uint32_t k = 0; k < o.ref.num_states(); ++k) {
    for (const float value : fresh.states[k])
      require(value == static_cast<float>(o.ref.state(k).start), "the kernel \"", kernel->id(), "\" starts state ",
              o.ref.state(k).name, " at ", value, ", not at ", o.ref.state(k).start);
  }
  PlainTables plain(bed, random);
  for (int64_t step = 1; step <= 3; ++step) {
    train_step(bed, plain, random, step);
    plain.compare_rows(bed, str_cat("after step ", step, " in the kernel \"", kernel->id(), "\""));
  }
}

// An object keeps nothing from one update to the next: what it needs is in the states and in tsr_update.
void check_optimizer_history(Subject& subject) {
  const Optimizer used(subject);
  used.needs_update();
  Random random = subject.random(4);
  RowSet warm(used.ref, 24, 5);
  warm.randomize(random);
  for (const int64_t step : {4, 9, 7}) used.one_by_one(at_step(step, 0.5 / static_cast<double>(step)), warm);
  if (TSR_HAS(tsr_optimizer, &used.api, update_rows)) used.together(at_step(3, 0.75), warm);
  for (const int64_t step : {1, 2, 6}) {
    const Optimizer fresh(subject);
    RowSet a(used.ref, 24, 5);
    a.randomize(random);
    RowSet b = a, halved = a;
    const std::vector<float> before = a.weights;
    subject.doing("update_row");
    used.one_by_one(at_step(step), a);
    fresh.one_by_one(at_step(step), b);
    require(a.weights == b.weights && a.states == b.states, "update_row for step ", step, " with learning rate ",
            learning_rate_at(step),
            " gives other rows after updates of other steps and rates than as the first call of an object");
    const Optimizer slower(subject);
    slower.one_by_one(at_step(step, learning_rate_at(step) / 2), halved);
    require(b.weights == before || b.weights != halved.weights, "update_row gives the same rows with learning rates ",
            learning_rate_at(step), " and ", learning_rate_at(step) / 2);
  }
}

void check_optimizer_ranks(Subject& subject) {
  const std::vector<double> sums = ask_in_processes(2, [&] {
    const Optimizer o(subject);
    o.needs_update();
    Random random = subject.random(5);
    RowSet rows(o.ref, 19, 7);
    rows.randomize(random);
    for (int64_t step = 1; step <= 3; ++step) o.one_by_one(at_step(step), rows);
    double sum = 0, place = 1;
    for (int64_t i = 0; i < rows.count(); ++i) {
      for (int64_t d = 0; d < rows.dim(); ++d) sum += rows.weight(i)[d] * (place += 1);
    }
    return sum;
  });
  require(std::bit_cast<uint64_t>(sums[0]) == std::bit_cast<uint64_t>(sums[1]),
          "the same updates give other rows in a process with RANK=1 than with RANK=0");
}

void check_optimizer_threads(Subject& subject) {
  const Optimizer o(subject);
  o.needs_update();
  Random random = subject.random();
  RowSet alone(o.ref, 33, 400);
  alone.randomize(random);
  RowSet shared = alone;
  for (int64_t step = 1; step <= 50; ++step) o.one_by_one(at_step(step), alone);
  subject.doing("update_row on four threads at once");
  on_four_threads([&](int t) {
    for (int64_t step = 1; step <= 50; ++step) o.range(at_step(step), shared, t * 100, t * 100 + 100);
  });
  require(alone.weights == shared.weights && alone.states == shared.states,
          "different rows updated on several threads at once differ from the same updates on one thread");
}

}  // namespace

std::span<const Check> optimizer_checks() {
  static constexpr const char* kRow = "abi/optimizer.h, tsr_optimizer::update_row";
  static constexpr Check kChecks[] = {
      {"optimizer.states", 3, TSR_OPTIMIZER_KIND, "abi/optimizer.h, tsr_optimizer::state", 20, check_optimizer_states},
      {"optimizer.learning_rate", 3, TSR_OPTIMIZER_KIND, "abi/optimizer.h, tsr_optimizer::learning_rate", 20,
       check_optimizer_learning_rate},
      {"optimizer.widths", 4, TSR_OPTIMIZER_KIND, kRow, 20, check_optimizer_rows_of_every_width},
      {"optimizer.zeros", 4, TSR_OPTIMIZER_KIND, kRow, 20, check_optimizer_zeros},
      {"optimizer.rows", 4, TSR_OPTIMIZER_KIND, "abi/optimizer.h, tsr_optimizer::update_rows", 20,
       check_optimizer_rows_together},
      {"optimizer.history", 4, TSR_OPTIMIZER_KIND, kRow, 20, check_optimizer_history},
      {"optimizer.formula", 4, TSR_OPTIMIZER_KIND, "tests/conformance/README.md, fused_optimizers", 20,
       check_optimizer_formula},
      {"optimizer.kernel", 4, TSR_OPTIMIZER_KIND, kRow, 30, check_optimizer_over_kernel},
      {"optimizer.ranks", 4, TSR_OPTIMIZER_KIND, kRow, 30, check_optimizer_ranks},
      {"optimizer.threads", 5, TSR_OPTIMIZER_KIND, kRow, 60, check_optimizer_threads},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify
