// The interface of the conformance runner: a case, what it expects, and the table of ops. One file per area adds ops.
//
// A file of cases is {"area", "cases": [{"name", "given", "expect", "tolerance", "quirk"?}]}; tests/conformance/ has
// the semantics. A case passes if everything that its op compared agrees. A quirk case that differs is printed as
// QUIRK and counts as passed, because following a quirk is optional.
#pragma once

#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "tessera/device.h"
#include "tessera/jagged_tensor.h"
#include "tessera/runtime.h"
#include "tessera/tensor.h"

namespace tessera::cli {

using json = nlohmann::ordered_json;

// Reads a tensor of the case files: {"shape", "dtype", "data"}; null gives an undefined Tensor. Throws kInvalidArgument
// otherwise.
Tensor tensor_from(const json& value);
// Reads {"keys", "values", "weights", "lengths" or "offsets", "stride", "stride_per_key_per_rank", "inverse_indices"};
// all except keys and values may be absent or null.
KeyedJaggedTensor kjt_from(const json& value);
// object[field], or null if the field is absent.
const json& field_or_null(const json& object, const char* field);

// Collects differences between what was expected and what came out.
class Checker {
 public:
  Checker(double rtol, double atol) : rtol_(rtol), atol_(atol) {}
  // Compares |got - want| <= atol + rtol * |want|, after rounding to want's dtype; shape and dtype are exact. NaN
  // equals NaN.
  void tensor(const std::string& field, const json& want, const Tensor& got);
  void number(const std::string& field, double want, double got);
  // Compares exactly: text, integers, lists, shapes. The order of an object's members does not matter.
  void equal(const std::string& field, const json& want, const json& got);
  void fail(const std::string& field, const std::string& what);
  bool ok() const { return failures_.empty(); }
  // A text like "field, largest error 3.1e-05" that starts with the worst field.
  std::string summary() const;
  int compared() const { return compared_; }  // number of comparisons; 0 is a failure of the runner
  double rtol() const { return rtol_; }
  double atol() const { return atol_; }

 private:
  struct Failure {
    double error;  // infinite if the difference is not one of numbers
    std::string text;
  };
  double rtol_, atol_;
  int compared_ = 0;
  std::vector<Failure> failures_;
};

struct CaseContext {
  const Runtime& runtime;
  std::string kernel;      // --kernel: plugin id, "auto" by default
  DeviceStreamPtr device;  // --device: where features are; null: host memory
  const json& given;
  const json& expect;
  Checker& check;         // made from the case's tolerance if that has rtol and atol (also under "values")
  const json& tolerance;  // as written, for areas with other forms
};

// Thrown by an op for a case that this build cannot run; it is printed as `SKIP name: reason`.
struct SkipCase {
  std::string reason;
};

using Op = std::function<void(CaseContext&)>;
// The op of a case is the first that exists of: given.op; "<area>/<given.module>"; "<area>".
using OpTable = std::map<std::string, Op>;

// One function per area file; the runner merges their tables.
OpTable sparse_ops();
OpTable embedding_module_ops();
OpTable fused_optimizer_ops();
OpTable optimizer_wrapper_ops();
OpTable planner_ops();         // areas plans and planner
OpTable sharded_module_ops();  // starts the ranks itself
OpTable quantization_ops();
OpTable inference_ops();  // starts ranks if tables are sharded
OpTable extra_ops();
OpTable sequence_ops();

// For op "error": runs the call and passes if it throws tessera::Error.
void expect_refusal(CaseContext& c, const std::function<void()>& call);

// A file of cases, read and checked for form. Throws UsageError that names the file and the fault.
struct CaseFile {
  std::string path;
  std::string area;
  json content;
};
CaseFile read_case_file(const std::string& path);

struct RunOptions {
  std::string kernel = "auto";
  DeviceStreamPtr device;
  const std::regex* only = nullptr;  // names to run; nullptr: all
};
struct Tally {
  int passed = 0, failed = 0, skipped = 0;
};
// Prints one line per case except those that plainly passed.
void run_cases(const CaseFile& file, const Runtime& runtime, const RunOptions& options, std::ostream& out,
               Tally& tally);

}  // namespace tessera::cli
