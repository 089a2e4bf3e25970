// Recalibrates the probabilities of a model by layers before its heads.
#pragma once

#include <string>
#include <vector>

#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/predictor.h"

namespace tessera::cli {

enum class Calibration { kNone, kPlatt, kIsotonic };
Calibration calibration_from(const std::string& name);  // kInvalidArgument: another name than "platt" and "isotonic"

// A logit z becomes a z + b for a head with the layer "affine".
struct Platt {
  double a = 1, b = 0;
};
// The logit becomes that of the share of positives near it: linear between points, constant outside, never falling.
struct Isotonic {
  std::vector<double> at, values;  // `at` ascends
};
struct CalibrationSample {
  double logit, label, weight;
};
// Platt, Probabilistic Outputs for Support Vector Machines, 1999, without his change of the labels: the least
// cross-entropy. kFailedPrecondition: the labels are all the same, or larger logits have fewer positives.
Platt fit_platt(const std::vector<CalibrationSample>& samples);
// Zadrozny and Elkan, Transforming Classifier Scores into Accurate Multiclass Probability Estimates, 2002: pools
// adjacent violators. The same errors.
Isotonic fit_isotonic(std::vector<CalibrationSample> samples);

// The data without the rows that the config keeps for validation, which a job is not trained on.
Dataset without_validation(const Config& config, Dataset data);

struct RecalibrateOptions {
  Calibration method = Calibration::kNone;
  double negatives_kept = 1;  // share of the negatives that the training rows have
};
// Adds the layers to each head of probabilities, and returns a sentence for each. With a method, it is fitted on the
// rows that the config holds out for validation. Then p becomes p / (p + (1 - p) / share) for the negatives that were
// left out (He et al., Practical Lessons from Predicting Clicks on Ads at Facebook, 2014). kInvalidArgument: there are
// no such rows, or no head of probabilities.
std::vector<std::string> recalibrate(const Runtime& runtime, InferenceModel& model, const Config* config,
                                     const Dataset* data, const RecalibrateOptions& options);

}  // namespace tessera::cli
