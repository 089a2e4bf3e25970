#include "data/profile_page.h"

#include <algorithm>
#include <cmath>

#include "bench/report/html.h"
#include "bench/report/svg.h"
#include "data/columns_toml.h"
#include "data/toml_text.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

struct Bin {
  std::string tip;
  double height;
};

// Ranges of equal width between the 1st and the 99th percentile; the outermost ones include everything outside.
std::vector<Bin> bins_of_numbers(const NumberSummary& numbers) {
  constexpr size_t kBins = 24;
  const std::vector<double> sample = numbers.sample();
  double low = quantile(sample, 0.01), high = quantile(sample, 0.99);
  if (low == high) low = numbers.least(), high = numbers.most();
  if (low == high) return {};
  std::vector<double> counts(kBins);
  for (const double x : sample) {
    const double at = std::clamp((x - low) / (high - low), 0.0, 1.0) * kBins;
    counts[std::min(kBins - 1, static_cast<size_t>(at))] += 1;
  }
  std::vector<Bin> out;
  const double width = (high - low) / kBins;
  for (size_t i = 0; i < kBins; ++i) {
    const double from = low + static_cast<double>(i) * width, share = counts[i] / static_cast<double>(sample.size());
    out.push_back({str_cat(short_number(from), " to ", short_number(from + width), ": ",
                           short_number(std::round(1000 * share) / 10), " %"),
                   share});
  }
  return out;
}

// The most frequent values.
std::vector<Bin> bins_of_values(const ColumnSeen& c) {
  constexpr size_t kBins = 24;
  std::vector<Bin> out;
  for (size_t i = 0; i < std::min(kBins, c.values.size()); ++i)
    out.push_back({str_cat(c.values[i].text, ": ", c.values[i].count), static_cast<double>(c.values[i].count)});
  return out;
}

std::string histogram(const std::vector<Bin>& bins, const std::string& title) {
  constexpr double kWidth = 480, kHeight = 72;
  if (bins.empty()) return {};
  double highest = 0;
  for (const Bin& b : bins) highest = std::max(highest, b.height);
  Svg svg(kWidth, kHeight, title);
  const double step = kWidth / static_cast<double>(std::max<size_t>(bins.size(), 8));
  for (size_t i = 0; i < bins.size(); ++i) {
    const double height = highest > 0 ? std::max(1.0, bins[i].height / highest * (kHeight - 4)) : 1;
    svg.rect(static_cast<double>(i) * step + 1, kHeight - height, step - 2, height, color(0), bins[i].tip);
  }
  return "<figure>" + svg.str() + "</figure>\n";
}

std::string role_of(const Decision& d) {
  switch (d.kind) {
    case Decision::Kind::kLabel:
      return "the label";
    case Decision::Kind::kOtherLabel:
      return "left out because " + d.reason;
    case Decision::Kind::kLeftOut:
      return "left out because " + d.reason;
    case Decision::Kind::kFeature:
      break;
  }
  if (d.times) return "a time: hour, weekday and days";
  if (d.dense && d.ids) return "a number, and an id";
  return d.dense ? "a number" : "ids";
}

}  // namespace

std::string histograms(const ColumnSeen& c) {
  const bool numbers = c.form == Form::kNumbers || c.form == Form::kWritten || c.form == Form::kTimes;
  const bool few = c.exact && c.distinct <= 24;
  return histogram(numbers && !few ? bins_of_numbers(c.numbers) : bins_of_values(c),
                   str_cat("how often the values of ", c.name, " come")) +
         histogram(bins_of_numbers(c.lengths), str_cat("how many items the rows of ", c.name, " have"));
}

std::string profile_page(const std::vector<ColumnSeen>& columns, const std::vector<Decision>& decisions,
                         const std::string& about, const std::string& job) {
  std::string out = "<p>" + escaped(about) + "</p>\n";
  for (size_t i = 0; i < columns.size(); ++i) {
    const ColumnSeen& c = columns[i];
    const std::string name = c.name.empty() ? "(without a name)" : c.name;
    const std::string text = str_cat(summary(c), ". ", role_of(decisions[i]), ".");
    const std::string image = histograms(c);
    out += html_section(name, text, image.empty() ? "<p></p>\n" : image);
  }
  return html_document("tessera data describe", out + html_details("The job", job));
}

}  // namespace tessera::cli
