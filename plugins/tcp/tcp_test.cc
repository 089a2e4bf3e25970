// The transport by its C functions. What every transport must do is in tests/collective, run over this one too.
#include "testing.h"

namespace tessera::tcp {
namespace {

// The C functions, as the core calls them.
TEST(Table, ConnectsAndExchanges) {
  TestHost host;
  const Where where{.world_size = 2};
  const tsr_collective& api = sdk::Collective::table<Tcp>;
  EXPECT_EQ(api.flags, 0u);
  const auto outcomes = in_threads(where, [&](int rank) {
    sdk::Options options("{}");
    Tcp tcp(sdk::Setup{host.host(), options, nullptr});
    const tsr_rendezvous rendezvous = rendezvous_of(rank, 2, where.port, "localhost", "t", 20);
    sdk::Call c;
    tsr_group* group = nullptr;
    c.check(api.connect(&tcp, &rendezvous, &group, c.err()));
    EXPECT_EQ(api.rank(group), rank);
    std::vector<float> data{1, 2, 3};
    const View<float> view(data);
    const tsr_collective_call how = call();
    tsr_work* work = nullptr;
    c.check(api.all_reduce(group, &static_cast<const DLTensor&>(view), TSR_REDUCE_SUM, &how, &work, c.err()));
    c.check(api.wait(work, c.err()));
    EXPECT_THAT(data, testing::ElementsAre(2, 4, 6));
    api.close(group);
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.code, TSR_OK) << outcome.text;
}

}  // namespace
}  // namespace tessera::tcp
