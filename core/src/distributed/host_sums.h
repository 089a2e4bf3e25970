// Between the two hops: rows of this host's lanes for a home elsewhere are added up here before they cross, and on the
// way back gradients of the sums are copied to every lane that has ids of the bag.
#pragma once

#include "distributed/step.h"
#include "wiring/wiring.h"

namespace tessera {

// Of a stream of this host, as the home with this rank's local index on `home_host` told.
const Presence& presence_of(const Wiring& wiring, const Step& step, int stream, int home_host);
// Bags of that home's batch that have ids at any lane of the sum.
int64_t bags_present(const Wiring& wiring, const Step& step, const HostSum& sum, int home_host);

// As a device takes it: packed rows of lanes, spread rows of sums: both in Step::rows.
void list_host_sums(const RankWiring& own, Step& step, RowMoves& moves);

// Relayed rows -> sums.
void sum_in_host(const RankWiring& own, Step& step);
// Gradients of sums -> rows of the lanes.
void spread_in_host(const RankWiring& own, Step& step);

}  // namespace tessera
