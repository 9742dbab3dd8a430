#include "client/cpp/side_channel.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

namespace ckptd {
namespace {

using ::testing::HasSubstr;

// The daemon's end of the socket, for one request.
struct Peer {
  UniqueFd socket;

  std::pair<v1::SideRequest, UniqueFd> Receive() {
    char packet[kSidePacketBytesMax];
    char control[CMSG_SPACE(sizeof(int))];
    iovec part = {packet, sizeof(packet)};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t bytes = recvmsg(socket.get(), &message, 0);
    v1::SideRequest request;
    EXPECT_TRUE(bytes >= 0 && request.ParseFromArray(packet, static_cast<int>(bytes)));
    UniqueFd fd;
    if (cmsghdr* header = CMSG_FIRSTHDR(&message)) {
      int number;
      std::memcpy(&number, CMSG_DATA(header), sizeof(int));
      fd = UniqueFd(number);
    }
    return {request, std::move(fd)};
  }

  void Send(const v1::SideReply& reply, int fd = -1) {
    std::string packet = reply.SerializeAsString();
    iovec part = {packet.data(), packet.size()};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    char control[CMSG_SPACE(sizeof(int))] = {};
    if (fd >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
    }
    ASSERT_EQ(sendmsg(socket.get(), &message, 0), static_cast<ssize_t>(packet.size()));
  }
};

class SideChannelTest : public ::testing::Test {
 protected:
  SideChannelTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    channel_ = std::make_unique<SideChannel>(UniqueFd(ends[0]), stop_.get(), guard_);
    peer_.socket = UniqueFd(ends[1]);
  }

  ForkGuard guard_;
  const UniqueFd stop_{eventfd(0, EFD_CLOEXEC)};
  std::unique_ptr<SideChannel> channel_;
  Peer peer_;
};

TEST_F(SideChannelTest, CarriesMessagesAndDescriptorsBothWays) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  UniqueFd read_end(pipe_ends[0]), write_end(pipe_ends[1]);
  std::thread daemon([&] {
    auto [request, fd] = peer_.Receive();
    EXPECT_EQ(request.hello().job(), "j");
    EXPECT_EQ(write(fd.get(), "x", 1), 1);
    v1::SideReply reply;
    reply.mutable_welcome()->set_token("t");
    peer_.Send(reply, read_end.get());
  });
  v1::SideRequest request;
  request.mutable_hello()->set_job("j");
  auto reply = channel_->Call(request, write_end.get(), absl::Seconds(10));
  daemon.join();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->message.welcome().token(), "t");
  char byte = 0;
  EXPECT_EQ(read(reply->fd.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  EXPECT_TRUE(fcntl(reply->fd.get(), F_GETFD) & FD_CLOEXEC);
}

TEST_F(SideChannelTest, ARefusalKeepsItsCodeAndText) {
  v1::SideReply refusal;
  refusal.mutable_error()->set_code("ALREADY_EXISTS");
  refusal.mutable_error()->set_message("rank 3 is process 7");
  peer_.Send(refusal);
  auto reply = channel_->Call({}, -1, absl::Seconds(10));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(reply.status().message(), "rank 3 is process 7");
}

TEST_F(SideChannelTest, ASilentDaemonIsUnavailableAndTheChannelHangsUp) {
  auto reply = channel_->Call({}, -1, absl::Milliseconds(20));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(reply.status().message()), HasSubstr("no answer"));
  pollfd entry = {channel_->fd(), POLLRDHUP, 0};
  EXPECT_EQ(poll(&entry, 1, 0), 1);
}

TEST_F(SideChannelTest, ASignalIsNoReasonToWaitForEver) {
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;  // As a trainer would: recvmsg() goes on, poll() does not.
  ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
  std::atomic<bool> ended = false;
  std::thread interrupter([&ended, caller = pthread_self()] {
    while (!ended) {
      pthread_kill(caller, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  auto reply = channel_->Call({}, -1, absl::Milliseconds(50));
  ended = true;
  interrupter.join();
  EXPECT_THAT(std::string(reply.status().message()), HasSubstr("no answer"));
}

TEST_F(SideChannelTest, AStopEndsTheWaitForADaemonThatHangs) {
  std::thread stopper([this] {
    peer_.Receive();
    eventfd_write(stop_.get(), 1);
  });
  const auto reply = channel_->Call({}, -1, absl::Minutes(10));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnavailable);
  stopper.join();
}

TEST_F(SideChannelTest, AClosedSocketIsUnavailable) {
  peer_.socket.Reset();
  EXPECT_EQ(channel_->Call({}, -1, absl::Seconds(1)).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(SideChannelTest, BytesThatAreNoMessageAreUnavailable) {
  ASSERT_EQ(send(peer_.socket.get(), "\xff\xff\xff", 3, 0), 3);
  EXPECT_EQ(channel_->Call({}, -1, absl::Seconds(1)).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(SideChannel, NobodyListeningIsUnavailable) {
  ForkGuard guard;
  EXPECT_EQ(SideChannel::Connect("/tmp/ckptd-no-such-socket.fd", -1, guard).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace ckptd
