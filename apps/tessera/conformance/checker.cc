#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/runner.h"

namespace tessera::cli {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::infinity();

std::string shortened(std::string text) {
  constexpr size_t kLongest = 120;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

std::string shape_text(const std::vector<int64_t>& shape) { return json(shape).dump(); }

bool same(const json& want, const json& got) {
  if (want.is_object() && got.is_object()) {
    if (want.size() != got.size()) return false;
    return std::all_of(want.items().begin(), want.items().end(), [&](const auto& item) {
      return got.contains(item.key()) && same(item.value(), got[item.key()]);
    });
  }
  if (want.is_array() && got.is_array()) {
    return std::equal(want.begin(), want.end(), got.begin(), got.end(), same);
  }
  return want == got;
}

// The largest of |got - want| beyond the bound, or 0 if all are within it.
double worst_error(const Tensor& want, const Tensor& got, double rtol, double atol) {
  double worst = 0;
  for (int64_t i = 0; i < want.numel(); ++i) {
    const double w = want.item(i), g = got.item(i);
    if (w == g || (std::isnan(w) && std::isnan(g))) continue;
    const double error = std::fabs(g - w);
    if (error <= atol + rtol * std::fabs(w) && std::isfinite(w)) continue;
    worst = std::max(worst, std::isnan(error) ? kNoNumber : error);
  }
  return worst;
}

// Compares as integers, because a double has fewer digits than an int64.
bool same_integers(const Tensor& want, const Tensor& got) {
  return want.to(DType::kInt64).to_vector<int64_t>() == got.to(DType::kInt64).to_vector<int64_t>();
}

std::string error_text(const std::string& field, double error) { return str_cat(field, ", largest error ", error); }

}  // namespace

void Checker::tensor(const std::string& field, const json& want, const Tensor& got) {
  if (want.is_null() || !got.defined()) {
    ++compared_;
    if (!want.is_null()) fail(field, "want a tensor, got none");
    if (got.defined()) fail(field, str_cat("want none, got a tensor of shape ", shape_text(got.shape())));
    return;
  }
  const Tensor expected = tensor_from(want);
  ++compared_;
  if (expected.shape() != got.shape()) {
    return fail(field, str_cat("want shape ", shape_text(expected.shape()), ", got ", shape_text(got.shape())));
  }
  if (expected.dtype() != got.dtype()) {
    return fail(field, str_cat("want ", to_string(expected.dtype()), ", got ", to_string(got.dtype())));
  }
  if (is_integer(got.dtype()) && same_integers(expected, got)) return;
  const double error =
      is_integer(got.dtype()) ? worst_error(expected, got, 0, 0) : worst_error(expected, got, rtol_, atol_);
  if (error > 0 || is_integer(got.dtype())) failures_.push_back({error, error_text(field, error)});
}

void Checker::number(const std::string& field, double want, double got) {
  ++compared_;
  const double error = worst_error(Tensor::scalar(want), Tensor::scalar(got), rtol_, atol_);
  if (error > 0) failures_.push_back({error, error_text(field, error)});
}

void Checker::equal(const std::string& field, const json& want, const json& got) {
  ++compared_;
  if (same(want, got)) return;
  fail(field, str_cat("want ", shortened(want.dump()), ", got ", shortened(got.dump())));
}

void Checker::fail(const std::string& field, const std::string& what) {
  failures_.push_back({kNoNumber, str_cat(field, ", ", what)});
}

std::string Checker::summary() const {
  if (failures_.empty()) return "";
  const auto worst = std::max_element(failures_.begin(), failures_.end(),
                                      [](const Failure& a, const Failure& b) { return a.error < b.error; });
  std::string text = worst->text;
  if (failures_.size() > 1) text += str_cat(" (and ", failures_.size() - 1, " more)");
  return text;
}

}  // namespace tessera::cli
