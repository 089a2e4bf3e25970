// Says which events of histories no model could score, before they become part of their users' histories.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "serve/row_columns.h"
#include "tessera/abi/draft/reader.h"
#include "tessera/data.h"
#include "tessera/predictor.h"

namespace tessera::serve {

// All members are [any-thread] after the constructor.
class EventCheck {
 public:
  // `lists` are those that the reader makes of events with these columns.
  EventCheck(const ModelDescription& model, std::shared_ptr<const ColumnEncoding> columns,
             const std::vector<std::string>& event_columns, const std::vector<std::string>& lists);

  // Why row `row` of the event columns' texts cannot be in a history: column "item": ...; empty: it can.
  std::string why_not(std::span<const tsr_reader_values> values, int64_t row) const;

 private:
  struct Checked {
    size_t event_column;  // index
    RowColumn column;     // of the model, with the event column's name
    int64_t ids;          // valid ids are [0, ids)
  };
  void check(const Checked& checked, std::string_view text) const;

  const std::shared_ptr<const ColumnEncoding> columns_;
  std::vector<Checked> checked_;
};

}  // namespace tessera::serve
