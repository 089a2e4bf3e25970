#include "data/profile_page.h"

#include <algorithm>
#include <cmath>

#include "data/columns_toml.h"
#include "data/toml_text.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

struct Bin {
  std::string label, tip;
  double height;
};

constexpr size_t kMostBins = 24;

// Ranges of equal width between the 1st and the 99th percentile; the outermost ones include everything outside. Whole
// numbers have ranges of whole numbers.
std::vector<Bin> bins_of_numbers(const NumberSummary& numbers, std::string (*text)(double) = short_number) {
  const std::vector<double> sample = numbers.sample();
  double low = quantile(sample, 0.01), high = quantile(sample, 0.99);
  if (low == high) low = numbers.least(), high = numbers.most();
  if (low == high) return {};
  const bool whole = numbers.whole() == numbers.count();
  if (whole) low = std::floor(low), high = std::floor(high) + 1;
  const double width = whole ? std::ceil((high - low) / kMostBins) : (high - low) / kMostBins;
  const size_t bins = whole ? static_cast<size_t>(std::ceil((high - low) / width)) : kMostBins;
  std::vector<double> counts(bins);
  for (const double x : sample)
    counts[static_cast<size_t>(std::clamp((x - low) / width, 0.0, static_cast<double>(bins - 1)))] += 1;
  std::vector<Bin> out;
  for (size_t i = 0; i < bins; ++i) {
    const double from = low + static_cast<double>(i) * width, to = whole ? from + width - 1 : from + width;
    const double share = counts[i] / static_cast<double>(sample.size());
    const std::string range = from == to ? text(from) : str_cat(text(from), " to ", text(to));
    out.push_back({text(from), str_cat(range, ": ", short_number(std::round(1000 * share) / 10), " %"), share});
  }
  return out;
}

// The most frequent values.
std::vector<Bin> bins_of_values(const ColumnSeen& c) {
  std::vector<Bin> out;
  for (size_t i = 0; i < std::min(kMostBins, c.values.size()); ++i)
    out.push_back(
        {c.values[i].text, str_cat(c.values[i].text, ": ", c.values[i].count), static_cast<double>(c.values[i].count)});
  return out;
}

void add_histogram(PageParts* parts, const std::vector<Bin>& bins, const std::string& title) {
  if (bins.empty()) return;
  PageParts chart = {{"kind", "columns"}, {"title", title}};
  for (const Bin& b : bins) {
    chart["labels"].push_back(b.label);
    chart["values"].push_back(b.height);
    chart["tips"].push_back(b.tip);
  }
  parts->push_back({{"chart", chart}});
}

std::string role_of(const Decision& d) {
  switch (d.kind) {
    case Decision::Kind::kLabel:
      return "the label";
    case Decision::Kind::kOtherLabel:
    case Decision::Kind::kLeftOut:
      return "left out because " + d.reason;
    case Decision::Kind::kFeature:
      break;
  }
  if (d.vector) return "a vector";
  if (d.times) return "a time: hour, weekday and days";
  if (d.dense && d.ids) return "a number, and an id";
  return d.dense ? "a number" : "ids";
}

}  // namespace

void add_histograms(PageParts* parts, const ColumnSeen& c) {
  if (c.form == Form::kVectors) return;  // summary() has their numbers
  const bool numbers = c.form == Form::kNumbers || c.form == Form::kWritten || c.form == Form::kTimes;
  const bool few = c.exact && c.distinct <= static_cast<int64_t>(kMostBins);
  add_histogram(parts,
                numbers && !few ? bins_of_numbers(c.numbers, c.form == Form::kTimes ? date_text : short_number)
                                : bins_of_values(c),
                numbers && !few ? "Values" : "The most frequent values");
  add_histogram(parts, bins_of_numbers(c.lengths), "Items of a row");
}

PageParts profile_page(const std::vector<ColumnSeen>& columns, const std::vector<Decision>& decisions,
                       const std::string& about, const std::string& job) {
  PageParts cards = PageParts::array();
  for (size_t i = 0; i < columns.size(); ++i) {
    const ColumnSeen& c = columns[i];
    PageParts parts = PageParts::array({{{"text", str_cat(summary(c), "; ", role_of(decisions[i]), ".")}}});
    add_histograms(&parts, c);
    cards.push_back({{"title", c.name.empty() ? "(without a name)" : c.name}, {"parts", parts}});
  }
  return PageParts::array({{{"text", about}}, {{"cards", cards}}, {{"details", "The job"}, {"text", job}}});
}

}  // namespace tessera::cli
