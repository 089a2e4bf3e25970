#include "train/page.h"

#include <numeric>

#include "page/page_file.h"
#include "tessera/error.h"

namespace tessera::cli {

void write_train_page(const std::string& path, const RunReport& report) {
  constexpr size_t kMostPoints = 500;
  RunReport shown = report;
  const size_t each = std::max<size_t>(1, (report.losses.size() + kMostPoints - 1) / kMostPoints);
  shown.losses.clear();
  for (size_t i = 0; i < report.losses.size(); i += each) {
    const auto begin = report.losses.begin() + static_cast<std::ptrdiff_t>(i);
    const size_t n = std::min(each, report.losses.size() - i);
    shown.losses.push_back(std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(n), 0.0) /
                           static_cast<double>(n));
  }
  PageParts run = PageParts::parse(to_json(shown));
  run["losses_each"] = each;  // steps of which a loss is the mean
  write_page(path, str_cat("tessera train: ", report.model, " on ", report.data_name),
             PageParts::array({{{"run", std::move(run)}}}));
}

}  // namespace tessera::cli
