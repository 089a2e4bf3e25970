#include "ranks.h"

#include <gtest/gtest.h>

#include <cstring>

namespace tessera::test {
namespace {

// How long idle ranks wait for the working ones: longer than any test.
constexpr double kPatience_s = 240;

struct Record {
  int32_t code, rank;
  char text[1016];
};
static_assert(sizeof(Record) == 1024);

}  // namespace

std::unique_ptr<Group> Group::split(int color, int key) const {
  sdk::Call c;
  tsr_group* child = nullptr;
  const tsr_collective_call how = call("split");
  c.check(api_.split(raw_, color, key, &how, &child, c.err()));
  return child == nullptr ? nullptr : std::make_unique<Group>(api_, child);
}

Pending Group::all_to_all_v(const DLTensor& send, Counts send_counts, const DLTensor& recv, Counts recv_counts,
                            const tsr_collective_call& how) const {
  sdk::Call c;
  Pending work = nullptr;
  c.check(api_.all_to_all_v(raw_, &send, send_counts.data(), &recv, recv_counts.data(), &how, &work, c.err()));
  return work;
}

Pending Group::all_reduce(const DLTensor& inout, int32_t op, const tsr_collective_call& how) const {
  sdk::Call c;
  Pending work = nullptr;
  c.check(api_.all_reduce(raw_, &inout, op, &how, &work, c.err()));
  return work;
}

Pending Group::reduce_scatter_v(const DLTensor& send, Counts counts, const DLTensor& recv, int32_t op,
                                const tsr_collective_call& how) const {
  sdk::Call c;
  Pending work = nullptr;
  c.check(api_.reduce_scatter_v(raw_, &send, counts.data(), &recv, op, &how, &work, c.err()));
  return work;
}

Pending Group::all_gather_v(const DLTensor& send, const DLTensor& recv, Counts counts,
                            const tsr_collective_call& how) const {
  sdk::Call c;
  Pending work = nullptr;
  c.check(api_.all_gather_v(raw_, &send, &recv, counts.data(), &how, &work, c.err()));
  return work;
}

Pending Group::broadcast(const DLTensor& inout, int32_t root, const tsr_collective_call& how) const {
  sdk::Call c;
  Pending work = nullptr;
  c.check(api_.broadcast(raw_, &inout, root, &how, &work, c.err()));
  return work;
}

Pending Group::barrier(const tsr_collective_call& how) const {
  sdk::Call c;
  Pending work = nullptr;
  c.check(api_.barrier(raw_, &how, &work, c.err()));
  return work;
}

void Group::finish(Pending work) const {
  sdk::Call c;
  c.check(api_.wait(work, c.err()));
}

Job::Job(const JobOptions& options)
    : part_(runtime_.create(TSR_COLLECTIVE_KIND, options.backend, options.part_options)),
      speaker_(options.speaker.empty() ? options.backend.substr(0, options.backend.find('(')) : options.speaker) {
  const RankEnvironment where = RankEnvironment::from_environment();
  tsr_rendezvous rendezvous{};
  rendezvous.struct_size = sizeof(rendezvous);
  rendezvous.rank = where.rank;
  rendezvous.world_size = where.world_size;
  rendezvous.local_rank = where.local_rank;
  rendezvous.local_world_size = where.local_world_size;
  rendezvous.master_port = where.master_port;
  rendezvous.master_addr = where.master_addr.c_str();
  rendezvous.token = where.token.c_str();
  rendezvous.timeout_s = options.timeout_s;
  rendezvous.device = {tensor_device(), 0};
  const tsr_collective& api = part_->api<tsr_collective>();
  sdk::Call c;
  tsr_group* group = nullptr;
  c.check(api.connect(part_->self(), &rendezvous, &group, c.err()));
  all_ = std::make_unique<Group>(api, group);
}

Outcome Job::run_here(Group* group, const std::function<std::string(Group&)>& body) const {
  try {
    return {TSR_OK, -1, body(*group)};
  } catch (const sdk::Failure& failure) {
    return {failure.code(), failure.rank(), failure.what()};
  } catch (const std::exception& e) {
    return {TSR_UNKNOWN, -1, e.what()};
  }
}

std::vector<Outcome> Job::run(int world, const std::function<std::string(Group&)>& body) const {
  TESSERA_CHECK(world >= 1 && world <= world_size(), "started with too few ranks for this test");
  std::unique_ptr<Group> group = all_->split(rank() < world ? 0 : -1);
  const Outcome mine = group ? run_here(group.get(), body) : Outcome{};
  group.reset();

  Record record{mine.code, mine.rank, {}};
  std::strncpy(record.text, mine.text.c_str(), sizeof(record.text) - 1);
  const auto* bytes = reinterpret_cast<const uint8_t*>(&record);
  std::vector<uint8_t> own(bytes, bytes + sizeof(record)), all(sizeof(record) * static_cast<size_t>(world_size()));
  const std::vector<int64_t> counts(static_cast<size_t>(world_size()), sizeof(record));
  all_->finish(all_->all_gather_v(View<uint8_t>(own), View<uint8_t>(all), counts, call("outcomes", kPatience_s)));
  std::vector<Outcome> outcomes;
  for (int r = 0; r < world; ++r) {
    std::memcpy(&record, all.data() + sizeof(record) * static_cast<size_t>(r), sizeof(record));
    outcomes.push_back({record.code, record.rank, record.text});
  }
  return outcomes;
}

std::vector<Outcome> texts_of(int world, const std::function<std::string(Group&)>& body) {
  return job().run(world, body);
}

std::vector<Outcome> outcomes_of(int world, const std::function<void(Group&)>& body) {
  return job().run(world, [&](Group& group) {
    body(group);
    return std::string();
  });
}

void with_groups(int world, const std::function<void(Group&)>& body) {
  for (const Outcome& outcome : outcomes_of(world, body)) EXPECT_EQ(outcome.code, TSR_OK) << outcome.text;
}

}  // namespace tessera::test
