// Which ranks share a machine, by the addresses they come from.
#include "door.h"
#include "testing.h"

namespace tessera::tcp {
namespace {

using testing::ElementsAre;

std::vector<int32_t> hosts(const std::vector<std::string>& ips) {
  std::vector<Address> addresses;
  uint16_t port = 1000;  // which tells nothing about the machine
  for (const std::string& ip : ips) addresses.push_back(to_address({asio::ip::make_address(ip), port++}));
  return hosts_of(addresses);
}

TEST(Hosts, EqualAddressesAreOneMachine) {
  EXPECT_THAT(hosts({"10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2"}), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(hosts({"10.0.0.9", "10.0.0.2", "10.0.0.9"}), ElementsAre(0, 1, 0));
  EXPECT_THAT(hosts({"fd00::1", "fd00::2", "fd00::1"}), ElementsAre(0, 1, 0));
}

TEST(Hosts, LoopbackIsOneMachine) { EXPECT_THAT(hosts({"127.0.0.1", "127.0.1.1", "::1"}), ElementsAre(0, 0, 0)); }

TEST(Hosts, AreKnownToConnectedRanksAndTheirSubgroups) {
  with_groups(3, [](sdk::Group& group) {
    for (int32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(group.host_of(rank), 0);
    const std::unique_ptr<sdk::Group> child = group.split(group.rank() == 1 ? 1 : 0);
    for (int32_t rank = 0; rank < child->world_size(); ++rank) EXPECT_EQ(child->host_of(rank), 0);
  });
}

}  // namespace
}  // namespace tessera::tcp
