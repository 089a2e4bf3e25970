// A step as a plan predicts it, before there is a batch. A walk along the wiring tells a visitor what each rank does
// and sends. Cost estimators are such visitors; they never re-implement the rules of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/sharding.h"
#include "wiring/wiring.h"

namespace tessera {

// A table feature's load, which is the same on every rank. Counts need not be whole. Ids are spread evenly over the
// rows.
struct ExpectedTableFeature {
  double bags = 0;
  double ids = 0;
  bool weighted = false;
  double distinct = 1;  // share of the ids that travel to another rank: see route_once.h
};

// The ids of one table feature and rank that are in a part of the table's rows.
struct ExpectedIdBlock {
  double bags = 0;       // samples, empty bags included
  double full_bags = 0;  // bags that have ids here
  double ids = 0;
  double rows = 0;  // rows that are looked up: one for each bag with ids or, for sequences, one for each id
  bool weighted = false, pooled = true;
  double distinct = 1;  // share of the ids and rows that travel, if the owner is another rank

  // Returns the ids and rows that travel to another rank.
  ExpectedIdBlock once() const;
  // Counts the bags for which a processor mispredicts if they have ids here: those with ids or those without, whichever
  // are fewer.
  double uncertain_bags() const;
  // The bytes of ids, weights and lengths in a payload, without padding.
  double bytes() const;
};
// `row_share`: share of the table's rows. `sequence`: rows are not pooled.
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

// Is told what one rank does in a step.
class StepVisitor {
 public:
  virtual ~StepVisitor() = default;
  // A home's ids along an id route to the route's rank, which may be the home itself.
  virtual void ids(const IdRoute&, const ExpectedIdBlock&) {}
  // Bytes of a home's whole payload for another rank, which follows the header.
  virtual void payload(int /*owner*/, double /*bytes*/) {}
  // Rows of an owner for another rank, or on the way between two hosts.
  virtual void rows_to(int /*home*/, const RowHop&) {}
  // Rows from another rank.
  virtual void rows_from(int /*owner*/, const RowHop&) {}
  // Rows of `cols` columns, except local rows, that are written to the output or added to a host's sum.
  virtual void put_together(int64_t /*cols*/, const ExpectedIdBlock&) {}
};

class ExpectedStep {
 public:
  // `table_features`: the loads, in the order of Wiring::table_features(). The wiring must outlive this object.
  ExpectedStep(const Wiring& wiring, const std::vector<ExpectedTableFeature>& table_features);

  void visit(const RankWiring& own, StepVisitor& visitor) const;

 private:
  struct Walk;
  const Wiring& wiring_;
  std::vector<ExpectedIdBlock> id_blocks_;          // by id route
  std::vector<ExpectedIdBlock> replicated_blocks_;  // by Wiring::replicated_rows()
  std::vector<ExpectedIdBlock> sums_;               // by host sum: the bags that have ids at any of its row routes
};

}  // namespace tessera
