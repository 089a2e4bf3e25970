#include "planner/exchange_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "wiring/messages.h"

namespace tessera {
namespace {

double most(const std::vector<double>& bytes) { return *std::max_element(bytes.begin(), bytes.end()); }

}  // namespace

ExchangeModel::ExchangeModel(const Topology& topology, const Machine& machine, const Joins& joins)
    : topology_(topology),
      machine_(machine),
      joins_{joins.ids, topology.accelerator() ? JoinExchanges::kNever : joins.rows},
      grid_(RankGrid::of(topology.world_size, topology.local_world_size, joins.ids)) {
  for (int peer = 1; peer < topology.world_size; ++peer) {
    const bool here = peer < topology.local_world_size;
    if (grid_.same_row(0, peer)) (here ? row_.in_host : row_.across) += 1;
    if (grid_.same_column(0, peer)) (here ? column_.in_host : column_.across) += 1;
  }
}

double ExchangeModel::busiest_host(const std::vector<double>& bytes) const {
  const int local = topology_.local_world_size;
  double most = 0;
  for (auto first = bytes.begin(); first != bytes.end(); first += local)
    most = std::max(most, std::accumulate(first, first + local, 0.0));
  return most / local;
}

Exchanged ExchangeModel::direct(const Crossing& sent) const {
  Exchanged out;
  const int local = topology_.local_world_size;
  const double in_host = most(sent.in_host),
               across = std::max(busiest_host(sent.across), busiest_host(sent.from_across));
  if (local > 1 && in_host > 0) out.in_host = machine_.intra_host->all_to_all_at(local, in_host);
  if (across > 0) out.across = machine_.inter_host->all_to_all_at(topology_.world_size - local + 1, across);
  return out;
}

// The time of the headers; all ranks send the same number.
Exchanged ExchangeModel::headers(double block) const {
  const auto [in_host, across] = grid_.reach(topology_.local_world_size);
  Exchanged out;
  if (in_host.ranks > 0) out.in_host = machine_.intra_host->all_to_all_at(in_host.ranks + 1, in_host.blocks * block);
  if (across.ranks > 0) out.across = machine_.inter_host->all_to_all_at(across.ranks + 1, across.blocks * block);
  return out;
}

int64_t ExchangeModel::inline_payload(const Crossing& ids) const {
  return inline_payload_for(static_cast<int64_t>(std::ceil(ids.largest)), topology_.world_size);
}

bool ExchangeModel::joins(JoinExchanges join, const Crossing& sent) const {
  return !grid_.is_direct() && is_joined(join, sent.largest);
}

std::vector<Crossing> ExchangeModel::by_way(const Together& all, JoinExchanges join) const {
  std::vector<Crossing> out;
  for (const Crossing* one : all) {
    const auto same = std::find_if(out.begin(), out.end(), [&](const Crossing& other) {
      return other.two_hops == one->two_hops && joins(join, other) == joins(join, *one);
    });
    if (same == out.end()) {
      out.push_back(*one);
      continue;
    }
    for (size_t rank = 0; rank < one->across.size(); ++rank) {
      same->in_host[rank] += one->in_host[rank];
      same->across[rank] += one->across[rank];
      same->from_across[rank] += one->from_across[rank];
    }
    same->largest = std::max(same->largest, one->largest);
  }
  return out;
}

Exchanged ExchangeModel::ids(const Together& all) const {
  double block = 0;
  Together following;
  for (const Crossing* one : all) {
    block += static_cast<double>(kHeaderBytes + inline_payload(*one));
    if (one->largest > 0 && inline_payload(*one) == 0) following.push_back(one);
  }
  Exchanged out = headers(block);
  for (const Crossing& way : by_way(following, joins_.ids))
    out += joins(joins_.ids, way) ? joined(hops(way, true)) : direct(way);
  return out;
}

Exchanged ExchangeModel::rows(const Together& all) const {
  Exchanged out;
  for (const Crossing& way : by_way(all, joins_.rows)) out += rows_one_way(way);
  return out;
}

Exchanged ExchangeModel::rows_one_way(const Crossing& sent) const {
  if (!joins(joins_.rows, sent)) return direct(sent);
  Exchanged out = joined(hops(sent, false));
  if (sent.two_hops && topology_.local_world_size > 1)
    out.in_host += machine_.intra_host->all_to_all_at(topology_.local_world_size, most(sent.in_host));
  return out;
}

// Homes send along their rows of the grid first, and owners along their columns first. A rank's bytes are assumed to be
// divided evenly among the other ranks.
ExchangeModel::Hops ExchangeModel::hops(const Crossing& sent, bool from_homes) const {
  const auto ranks = static_cast<size_t>(topology_.world_size);
  std::vector<double> lines(static_cast<size_t>(from_homes ? grid_.rows : grid_.columns));
  const auto line = [&](size_t rank) -> double& {
    const int r = static_cast<int>(rank);
    return lines[static_cast<size_t>(from_homes ? grid_.row_of(r) : grid_.column_of(r))];
  };
  const auto bytes = [&](size_t rank) { return sent.across[rank] + (sent.two_hops ? 0 : sent.in_host[rank]); };
  for (size_t rank = 0; rank < ranks; ++rank) line(rank) += bytes(rank);
  // Ranks for which a rank has bytes: all of them, those in other rows, and those in other columns.
  double others = 0, other_rows = 0, other_columns = 0;
  for (int peer = sent.two_hops ? topology_.local_world_size : 1; peer < topology_.world_size; ++peer) {
    others += 1;
    if (!grid_.same_row(0, peer)) other_rows += 1;
    if (!grid_.same_column(0, peer)) other_columns += 1;
  }
  const double rows = grid_.rows, columns = grid_.columns;
  Hops out;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const double relayed = line(rank) / (from_homes ? columns : rows);
    out.row.push_back((from_homes ? bytes(rank) : relayed) * other_columns / others);
    out.column.push_back((from_homes ? relayed : bytes(rank)) * other_rows / others);
  }
  return out;
}

Exchanged ExchangeModel::along(const Reach& reach, const std::vector<double>& bytes) const {
  const double across = reach.across_share() * most(bytes), in_host = most(bytes) - across;
  Exchanged out;
  if (reach.in_host > 0) out.in_host = machine_.intra_host->all_to_all_at(static_cast<int>(reach.in_host) + 1, in_host);
  if (reach.across > 0) out.across = machine_.inter_host->all_to_all_at(static_cast<int>(reach.across) + 1, across);
  return out;
}

Exchanged ExchangeModel::all_reduce(double bytes) const {
  if (topology_.world_size == 1 || bytes <= 0) return {};
  // The parts for ranks of the same host do not cross to other hosts.
  const double world = topology_.world_size, crossing = (world - topology_.local_world_size) / (world - 1);
  if (topology_.hosts() > 1)
    return {.across = machine_.inter_host->all_reduce_at(topology_.world_size, crossing * bytes)};
  return {.in_host = machine_.intra_host->all_reduce_at(topology_.world_size, bytes)};
}

double ExchangeModel::wait() const {
  if (topology_.world_size == 1) return 0;
  return topology_.hosts() > 1 ? machine_.inter_host->wait : machine_.intra_host->wait;
}

void ExchangeModel::add_across(const Hops& hops, std::vector<double>& by_rank) const {
  for (size_t rank = 0; rank < by_rank.size(); ++rank)
    by_rank[rank] += hops.row[rank] * row_.across_share() + hops.column[rank] * column_.across_share();
}

void ExchangeModel::add_ids_across(const Crossing& ids, std::vector<double>& by_rank) const {
  if (ids.largest > 0 && inline_payload(ids) == 0 && joins(joins_.ids, ids))
    return add_across(hops(ids, true), by_rank);
  for (size_t rank = 0; rank < by_rank.size(); ++rank) by_rank[rank] += ids.across[rank];
}

void ExchangeModel::add_rows_across(const Crossing& sent, std::vector<double>& by_rank) const {
  if (joins(joins_.rows, sent)) return add_across(hops(sent, false), by_rank);
  for (size_t rank = 0; rank < by_rank.size(); ++rank) by_rank[rank] += sent.across[rank];
}

}  // namespace tessera
