// A step as the reader of a plan imagines it, before there is a batch: what every rank does and sends, walked along the
// wiring. Those who price a step or expect its bytes are visitors, and know no rule of the step themselves.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/wire_bytes.h"
#include "wiring/wiring.h"

namespace tessera {

// The load of a slot on every rank; counts need not be whole. Ids are spread evenly over the rows.
struct ExpectedSlot {
  double bags = 0;
  double ids = 0;
  bool weighted = false;
};

// The ids of one slot and rank that are in a part of the table's rows.
struct ExpectedPiece {
  double bags = 0;       // samples, empty bags included
  double full_bags = 0;  // that have ids here
  double ids = 0;
  double rows = 0;  // that are looked up: one for each full bag, or id
  bool weighted = false, pooled = true;

  // Bags that have ids here where most have not, or the other way round: a processor guesses wrong.
  double uncertain_bags() const;
  // The bytes of ids, weights and lengths in a payload, without padding.
  double bytes() const;
};
// `row_share`: of the table's rows; `sequence`: rows are not pooled.
ExpectedPiece expected_piece(const ExpectedSlot& slot, double row_share, bool sequence);

// Rows of a lane, or the sums of a host's lanes, between two ranks. Their gradients travel the other way.
struct RowHop {
  int lane = -1;      // or
  int host_sum = -1;  // index into Wiring
  int slot = 0;
  double rows = 0;
  int64_t cols = 0;
  double elements() const { return rows * static_cast<double>(cols); }
};

// The bytes that a transport sends for a piece of elements, or of expected ones: these need not be whole, and have what
// the whole numbers of rows around them have.
int64_t bytes_on_wire(const WireBytes& wire, bool gradients, int64_t elements, int64_t row_elements);
double expected_on_wire(const WireBytes& wire, bool gradients, double elements, int64_t row_elements);

// Told what one rank does in a step.
class StepVisitor {
 public:
  virtual ~StepVisitor() = default;
  // Bytes of a home's ids along a stream, to its rank, which may be the own one.
  virtual void ids(const Stream&, const ExpectedPiece&) {}
  // Bytes of a home's whole payload for another rank, behind its header.
  virtual void payload(int /*owner*/, double /*bytes*/) {}
  // Rows of an owner for another rank, or on the way between two hosts.
  virtual void rows_to(int /*home*/, const RowHop&) {}
  // Rows from another rank.
  virtual void rows_from(int /*owner*/, const RowHop&) {}
  // Rows of `cols` columns become the output's, where they do not stay, or a part of a host's sum.
  virtual void put_together(int64_t /*cols*/, const ExpectedPiece&) {}
};

class ExpectedStep {
 public:
  // `slots`: of all ranks alike, by Wiring::slots(). The wiring outlives the object.
  ExpectedStep(const Wiring& wiring, const std::vector<ExpectedSlot>& slots);

  void visit(const RankWiring& own, StepVisitor& visitor) const;

 private:
  struct Walk;
  const Wiring& wiring_;
  std::vector<ExpectedPiece> pieces_;  // by stream
  std::vector<ExpectedPiece> kept_;    // by Wiring::kept()
  std::vector<ExpectedPiece> sums_;    // by host sum: bags that have ids at any of its lanes
};

}  // namespace tessera
