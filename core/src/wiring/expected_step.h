// A step as the reader of a plan imagines it, before there is a batch: what every rank does and sends, walked along the
// wiring. Cost estimators are visitors of this walk; they never re-implement the rules of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/sharding.h"
#include "wiring/wiring.h"

namespace tessera {

// The load of a table feature on every rank; counts need not be whole. Ids are spread evenly over the rows.
struct ExpectedTableFeature {
  double bags = 0;
  double ids = 0;
  bool weighted = false;
  double distinct = 1;  // share of the ids that travel to another rank: route_once.h
};

// The ids of one table feature and rank that are in a part of the table's rows.
struct ExpectedIdBlock {
  double bags = 0;       // samples, empty bags included
  double full_bags = 0;  // that have ids here
  double ids = 0;
  double rows = 0;  // that are looked up: one for each full bag, or id
  bool weighted = false, pooled = true;
  double distinct = 1;  // share of the ids and rows that travel, if the rank is another one

  // The part that travels to another rank.
  ExpectedIdBlock once() const;
  // Bags that have ids here where most have not, or the other way round: a processor guesses wrong.
  double uncertain_bags() const;
  // The bytes of ids, weights and lengths in a payload, without padding.
  double bytes() const;
};
// `row_share`: of the table's rows; `sequence`: rows are not pooled.
ExpectedIdBlock expected_id_block(const ExpectedTableFeature& table_feature, double row_share, bool sequence);

// Rows of a row route, or the sums of a host's row routes, between two ranks. Their gradients travel the other way.
struct RowHop {
  int row_route = -1;  // or
  int host_sum = -1;   // index into Wiring
  int table_feature = 0;
  double rows = 0;
  int64_t cols = 0;
  double elements() const { return rows * static_cast<double>(cols); }
};

// The bytes that a transport sends for a message of `elements`. Expected elements need not be whole: their bytes are
// interpolated between the whole numbers of rows around them.
int64_t bytes_on_wire(const WireBytes& wire, bool gradients, int64_t elements, int64_t row_elements);
double expected_on_wire(const WireBytes& wire, bool gradients, double elements, int64_t row_elements);

// Told what one rank does in a step.
class StepVisitor {
 public:
  virtual ~StepVisitor() = default;
  // A home's ids along an id route, to its rank, which may be the own one.
  virtual void ids(const IdRoute&, const ExpectedIdBlock&) {}
  // Bytes of a home's whole payload for another rank, after its header.
  virtual void payload(int /*owner*/, double /*bytes*/) {}
  // Rows of an owner for another rank, or on the way between two hosts.
  virtual void rows_to(int /*home*/, const RowHop&) {}
  // Rows from another rank.
  virtual void rows_from(int /*owner*/, const RowHop&) {}
  // Rows of `cols` columns that are not local become the output's, or a part of a host's sum.
  virtual void put_together(int64_t /*cols*/, const ExpectedIdBlock&) {}
};

class ExpectedStep {
 public:
  // `table_features`: of all ranks alike, by Wiring::table_features(). The wiring outlives the object.
  ExpectedStep(const Wiring& wiring, const std::vector<ExpectedTableFeature>& table_features);

  void visit(const RankWiring& own, StepVisitor& visitor) const;

 private:
  struct Walk;
  const Wiring& wiring_;
  std::vector<ExpectedIdBlock> id_blocks_;          // by id route
  std::vector<ExpectedIdBlock> replicated_blocks_;  // by Wiring::replicated_rows()
  std::vector<ExpectedIdBlock> sums_;               // by host sum: bags that have ids at any of its row routes
};

}  // namespace tessera
