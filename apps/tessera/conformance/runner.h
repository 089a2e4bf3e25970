// The conformance runner's inside: a case, what it expects, and the table of ops. One file per area adds ops.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/runtime.h"
#include "tessera/tensor.h"

namespace tessera::cli {

using json = nlohmann::ordered_json;

// A tensor of the case files: {"shape", "dtype", "data"}; null gives an undefined Tensor. kInvalidArgument otherwise.
Tensor tensor_from(const json& value);

// Collects differences between what was expected and what came out.
class Checker {
 public:
  Checker(double rtol, double atol) : rtol_(rtol), atol_(atol) {}
  // |got - want| <= atol + rtol * |want|, after rounding to want's dtype; shape and dtype exact.
  void tensor(const std::string& field, const json& want, const Tensor& got);
  void number(const std::string& field, double want, double got);
  void equal(const std::string& field, const json& want, const json& got);  // exact: text, integers, lists, shapes
  void fail(const std::string& field, const std::string& what);
  bool ok() const { return failures_.empty(); }
  // "field, largest error 3.1e-05" of the worst field first.
  std::string summary() const;
  int compared() const { return compared_; }  // how many things were looked at: 0 is a failure of the runner

 private:
  double rtol_, atol_;
  int compared_ = 0;
  std::vector<std::pair<double, std::string>> failures_;
};

struct CaseContext {
  const Runtime& runtime;
  std::string kernel;  // --kernel: plugin id, "auto" by default
  const json& given;
  const json& expect;
  Checker& check;
};

// Thrown by an op for a case that this build cannot run: printed as `SKIP name: reason`.
struct SkipCase {
  std::string reason;
};

using Op = std::function<void(CaseContext&)>;
using OpTable = std::map<std::string, Op>;  // by given.op; module and metric files use "area/..." keys of their own

// One function per area file; the runner merges them by area.
OpTable sparse_ops();
OpTable embedding_module_ops();
OpTable fused_optimizer_ops();
OpTable optimizer_wrapper_ops();
OpTable planner_ops();         // areas plans and planner
OpTable sharded_module_ops();  // starts the ranks itself

// For op "error": runs the call and passes if it throws tessera::Error.
void expect_refusal(CaseContext& c, const std::function<void()>& call);

}  // namespace tessera::cli
