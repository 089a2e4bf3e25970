// Hosts as the ranks of a job see them: local ranks, the group inside a host and the group across hosts. The launcher
// defines the hosts; the ranks are processes on this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spawn.h"
#include "tessera/error.h"
#include "tessera/process_group.h"
#include "tessera_program.h"

namespace tessera::test::two_hosts_groups_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<ProcessGroup> meet(const RankEnvironment& where) {
  ProcessGroupOptions options{.backend = "tcp", .timeout_s = 30};
  return ProcessGroup::connect(Runtime(), where, options);
}

// For example "0,1": the ranks of the whole job in `part`, in its order.
std::string members(const ProcessGroup& part, int world_rank) {
  std::string text;
  for (const std::string& member : part.all_gather_text(str_cat(world_rank), "members")) {
    text += (text.empty() ? "" : ",") + member;
  }
  return text;
}

std::vector<std::string> on_ranks(int world, int per_host,
                                  const std::function<std::string(const RankEnvironment&)>& body) {
  return cli::run_in_ranks(world, per_host, 60, body);
}

// A rank's description of its hosts.
std::string hosts_seen(const RankEnvironment& where) {
  try {
    const auto group = meet(where);
    return str_cat(group->local_rank(), " of ", group->local_world_size());
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(HostGroups, InAHostAndAcrossHosts) {
  const std::vector<std::string> said = on_ranks(6, 2, [](const RankEnvironment& where) {
    const auto group = meet(where);
    const auto in = group->in_host(), across = group->across_hosts();
    std::string text = str_cat(members(*in, where.rank), " | ", members(*across, where.rank));
    text += str_cat(" | ", in->local_rank(), "/", in->local_world_size());
    text += str_cat(" | ", across->local_rank(), "/", across->local_world_size());
    if (group->in_host() != in || group->across_hosts() != across) text += " | made again";
    return text;
  });
  EXPECT_THAT(said, ElementsAre("0,1 | 0,2,4 | 0/2 | 0/1", "0,1 | 1,3,5 | 1/2 | 0/1", "2,3 | 0,2,4 | 0/2 | 0/1",
                                "2,3 | 1,3,5 | 1/2 | 0/1", "4,5 | 0,2,4 | 0/2 | 0/1", "4,5 | 1,3,5 | 1/2 | 0/1"));
}

TEST(HostGroups, WhereAllRanksShareAHostOrNoneDo) {
  const auto body = [](const RankEnvironment& where) {
    const auto group = meet(where);
    const auto in = group->in_host(), across = group->across_hosts();
    return str_cat(members(*in, where.rank), " | ", members(*across, where.rank));
  };
  EXPECT_THAT(on_ranks(2, 2, body), ElementsAre("0,1 | 0", "0,1 | 1"));
  EXPECT_THAT(on_ranks(2, 1, body), ElementsAre("0 | 0,1", "1 | 0,1"));
  EXPECT_THAT(on_ranks(1, 1, body), ElementsAre("0 | 0"));
}

// Sums inside the host, then across hosts: every rank has the sum of all, and none waits for the wrong group.
TEST(HostGroups, SumInTwoSteps) {
  const std::vector<std::string> said = on_ranks(4, 2, [](const RankEnvironment& where) {
    const auto group = meet(where);
    const Tensor sum = Tensor::from<int64_t>({1 << where.rank});
    group->in_host()->all_reduce(sum).wait();
    group->across_hosts()->all_reduce(sum).wait();
    return str_cat(sum.to_vector<int64_t>()[0]);
  });
  EXPECT_THAT(said, Each("15"));
}

TEST(HostGroups, OfAGroupWithUnevenHosts) {
  const std::vector<std::string> said = on_ranks(4, 2, [](const RankEnvironment& where) {
    const auto part = meet(where)->split(where.rank == 3 ? -1 : 0);
    return part ? str_cat(part->local_rank(), "/", part->local_world_size()) : std::string("none");
  });
  EXPECT_THAT(said, ElementsAre("0/1", "0/1", "0/1", "none"));
}

// Messages use ranks of the whole job, also if they come from one of its groups.
TEST(HostGroups, NameRanksOfTheJobAndAreAbortedWithIt) {
  const std::vector<std::string> said = on_ranks(4, 2, [](const RankEnvironment& where) -> std::string {
    const auto group = meet(where);
    const auto in = group->in_host(), across = group->across_hosts();
    try {
      group->barrier();  // others may still be in it when rank 3 aborts the group
      if (where.rank == 3) {
        group->abort("enough");
        return "";
      }
      (where.rank == 2 ? in : where.rank == 1 ? across : group)->barrier("waiting");
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing happened";
  });
  for (const int rank : {0, 1, 2}) EXPECT_THAT(said[rank], HasSubstr("rank 3 aborted: enough")) << rank;
}

TEST(Hosts, WhereTheLauncherDoesNotSayAreFoundByAddress) {
  const std::vector<std::string> said = on_ranks(3, 1, [](RankEnvironment where) {
    where.local_world_size = 0;
    return hosts_seen(where);
  });
  EXPECT_THAT(said, ElementsAre("0 of 3", "1 of 3", "2 of 3"));
}

TEST(Hosts, UnevenOnesAreRefusedOnEveryRank) {
  const std::vector<std::string> uneven = on_ranks(3, 1, [](RankEnvironment where) {
    where.local_world_size = where.rank < 2 ? 2 : 1;
    where.local_rank = where.rank % where.local_world_size;
    return hosts_seen(where);
  });
  EXPECT_THAT(uneven, Each(HasSubstr("rank 0 is on a host with 2 ranks, rank 2 on one with 1")));
  const std::vector<std::string> round_robin = on_ranks(4, 2, [](RankEnvironment where) {
    where.local_rank = where.rank / 2;
    return hosts_seen(where);
  });
  EXPECT_THAT(round_robin, Each(HasSubstr("rank 1 is local rank 0 of its host, but with 2 ranks per host")));
}

}  // namespace
}  // namespace tessera::test::two_hosts_groups_test
