// Shows the fused optimizer of a kernel instance as a KeyedOptimizer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/lookup.h"
#include "tessera/optim.h"

namespace tessera {

// The lookup's backward() updates the rows, so step() does nothing. There is one parameter group with the option "lr",
// which reads back as float32. States are "<table>.momentum1", ...: copies of the kernel's, [rows] or [rows, dim].
class EmbeddingFusedOptimizer : public KeyedOptimizer {
 public:
  struct Table {
    std::string key;   // "embedding_bags.t1.weight"
    std::string name;  // "t1"
    int index = 0;     // in the lookup
  };
  EmbeddingFusedOptimizer(std::shared_ptr<Lookup> lookup, std::vector<Table> tables);

  void step() override {}
  std::vector<Item> params() const override;
  std::vector<std::pair<std::string, OptimizerState>> state() const override;
  void set_state(std::string_view key, const OptimizerState& state) override;
  std::vector<ParamGroup> param_groups() const override;
  size_t num_groups() const override { return 1; }
  void set_option(size_t group, std::string_view option, double value) override;
  void init_state() override {}
  std::string class_name() const override { return "EmbeddingFusedOptimizer"; }

 private:
  std::shared_ptr<Lookup> lookup_;
  std::vector<Table> tables_;
  std::vector<ParameterPtr> parameters_;
};

}  // namespace tessera
