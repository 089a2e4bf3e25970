// Where the rows of a step lie on the wire, known once the inputs were exchanged.
//
// Step::rows holds three parts: the rows of the own lanes for the own samples, which do not travel, but for those that
// the lookup writes to the output (RankWiring::stays); as owner, the rows of the own lanes by home; as home, those of
// the others' lanes by owner. That is all with one hop (HostGrid::count == 1). With two hops it holds for the ranks of
// one host, and:
//   inside the host  a rank also gets, for the homes of other hosts that have its local index, the rows of lanes that
//                    are summed (by owner, then by home's host);
//   across hosts     it sends to each rank elsewhere the rows of its lanes that are not summed, and the sums, if that
//                    rank has its local index.
// Every lane's rows cross between two hosts at most once, and those of a host sum as one row per bag.
#pragma once

#include "distributed/step.h"
#include "wiring/wiring.h"

namespace tessera {

// Fills the hops, the begins, and the lengths of host sums; grows Step::rows.
void lay_out_rows(const RankWiring& own, Step& step);

}  // namespace tessera
