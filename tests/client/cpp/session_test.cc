// What a session does without a daemon; with one: tests/e2e/client_test.cc.
#include "client/cpp/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cpp/client.h"

namespace ckptd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Session, AnAbsentDaemonIsUnavailableInTimeAndNamesTheSocket) {
  SessionOptions options;
  options.client.socket = "/tmp/ckptd-no-such.sock";
  options.client.timeout = absl::Milliseconds(200);
  const absl::Time begun = absl::Now();
  const absl::Status status = Session::Open(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("/tmp/ckptd-no-such.sock (argument)"), HasSubstr("No such file")));
  EXPECT_LT(absl::Now() - begun, absl::Seconds(5));
}

TEST(Session, ALongSocketPathIsRefusedWithItsLength) {
  SessionOptions options;
  options.client.socket = "/" + std::string(150, 's');
  const absl::Status status = Session::Open(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("151"));
}

TEST(Client, AnAbsentDaemonIsUnavailableInTimeAndNamesTheSocket) {
  ClientOptions options;
  options.socket = "/tmp/ckptd-no-such.sock";
  options.timeout = absl::Milliseconds(100);
  const absl::Status status = Client::Connect(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/tmp/ckptd-no-such.sock (argument)"));
}

}  // namespace
}  // namespace ckptd
