#include "data/test_choice.h"

#include <cmath>

#include "data/toml_text.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

constexpr int64_t kEnoughRows = 100;  // rows of the last tenth from which on a difference means something

// Distance between the means of the last tenth and of the other rows, in deviations.
double drift(const ColumnSeen& c) {
  const double deviation = c.numbers.deviation();
  constexpr double kExact = 9007199254740992;  // 2^53: sums of larger numbers lose their digits
  if (c.numbers.least() < -kExact || c.numbers.most() > kExact) return 0;
  if (c.form != Form::kNumbers || c.list || c.tail_fields < kEnoughRows || deviation == 0) return 0;
  return std::abs(c.tail_mean - c.head_mean) / deviation;
}

// Total variation distance between the words of the last tenth and of the other rows, in [0, 1].
double other_words(const ColumnSeen& c) {
  constexpr size_t kFew = 50;
  const auto tail = static_cast<double>(c.tail_fields), head = static_cast<double>(c.fields - c.tail_fields);
  if (c.form != Form::kTexts || !c.exact || c.values.size() > kFew || c.tail_fields < kEnoughRows || head == 0)
    return 0;
  double out = 0;
  for (size_t i = 0; i < c.values.size(); ++i) {
    const auto in_tail = static_cast<double>(c.values[i].tail), all = static_cast<double>(c.values[i].count);
    out += std::abs(in_tail / tail - (all - in_tail) / head) / 2;
  }
  return out;
}

std::string drift_note(const std::vector<ColumnSeen>& columns, const std::vector<Decision>& decisions) {
  constexpr double kDeviations = 0.5, kShare = 0.3;
  std::vector<std::string> names;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (decisions[i].kind == Decision::Kind::kLeftOut) continue;
    if (drift(columns[i]) > kDeviations || other_words(columns[i]) > kShare) names.push_back(columns[i].name);
  }
  if (names.empty()) return {};
  return comment(str_cat("The last tenth of the rows differs from the others in ", listed(names, 5),
                         ": the files are sorted. Do not test on the last rows, unless they are the newest."));
}

}  // namespace

TestSplit test_split(const std::vector<ColumnSeen>& columns, const std::vector<Decision>& decisions,
                     const Labels& labels) {
  TestSplit out;
  const std::string drifts = drift_note(columns, decisions);
  const ColumnSeen* time = nullptr;
  for (size_t i = 0; i < columns.size() && time == nullptr; ++i) {
    if (decisions[i].times && decisions[i].kind == Decision::Kind::kFeature) time = &columns[i];
  }
  if (time != nullptr && time->sorted && time->missing == 0) {
    out.in_time = true;
    out.text = comment(str_cat("The files are in order of ", quoted(time->name),
                               ": the newest rows are the test, as the model will meet them. test = \"random\", with "
                               "validation.split = \"random\", takes any.")) +
               "test = \"last\"\n";
    return out;
  }
  for (const size_t l : labels.columns) {
    if (drift(columns[l]) > 0.1)
      out.text +=
          comment(str_cat("The last tenth of the rows has other labels than the rest: ", quoted(columns[l].name),
                          " is ", short_number(columns[l].tail_mean), " there, and ",
                          short_number(columns[l].head_mean), " before, on average."));
  }
  out.text += drifts + "test = \"random\"\n";
  if (time != nullptr && time->missing == 0)
    out.text +=
        comment(str_cat("test = ", quoted("time:" + time->name), " takes the newest rows by this column instead."));
  return out;
}

}  // namespace tessera::cli
