// Tests how the transport decides, by addresses, which ranks share a machine.
#include <sys/socket.h>

#include <functional>
#include <thread>

#include "door.h"
#include "mesh.h"
#include "testing.h"

namespace tessera::tcp {
namespace {

using testing::ElementsAre;

std::vector<int32_t> hosts(const std::vector<std::string>& ips) {
  std::vector<Address> addresses;
  uint16_t port = 1000;  // says nothing about the machine
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
    const std::unique_ptr<sdk::Group> child = group.split(group.rank() == 1 ? 1 : 0, 0, call());
    for (int32_t rank = 0; rank < child->world_size(); ++rank) EXPECT_EQ(child->host_of(rank), 0);
  });
}

// The small send buffer is only for connections inside one machine; elsewhere the kernel chooses better.
TEST(Mesh, LittleQueuesUpBetweenRanksOfOneMachine) {
  TestHost host;
  const Address anywhere = to_address({asio::ip::make_address("127.0.0.1"), 0});
  MeshBuilder lower(host.host(), "t", anywhere), upper(host.host(), "t", anywhere);
  const Members members{{lower.address(), upper.address()}, {0, 1}};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::vector<Link> of_lower, of_upper;
  std::thread other([&] { of_upper = upper.connect({{}, 1, members, 20, deadline}); });
  of_lower = lower.connect({{}, 0, members, 20, deadline});
  other.join();
  for (const Fd& fd : {std::cref(of_lower[1].data), std::cref(of_upper[0].data)}) {
    int size = 0;
    socklen_t length = sizeof(size);
    ASSERT_EQ(getsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &size, &length), 0);
    EXPECT_GT(size, 100 << 10);
    EXPECT_LE(size, 512 << 10);
  }
}

}  // namespace
}  // namespace tessera::tcp
